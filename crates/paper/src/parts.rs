//! Long series of trials, in parts with a seed each. The sums of finished parts are kept in a folder, so that a run
//! that is killed loses one part of each experiment at most, and a later run continues after the kept ones.
//!
//! The law: a series is the sum of its parts, and a part depends on nothing but its seed and its number of trials. So
//! parts may be run in any order, in any number of runs, and a longer series begins with the parts of a shorter one.

use crate::Setting;
use crate::fill::number_at;
use flowpeel::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Ends each line of a kept part: a line without it was cut off.
const LINE_END: &str = ".";

/// A series of trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a> {
    /// A name that tells the series from the others of its experiment: that of its file.
    pub(super) name: &'a str,
    /// Where the seeds of the parts follow from.
    pub(super) seed: u64,
    /// All trials.
    pub(super) trial_count: u64,
    /// The trials of a part; the last part may have fewer.
    pub(super) part_size: u64,
}

/// The kept parts of one experiment.
#[derive(Debug)]
pub struct KeptParts {
    folder: PathBuf,
    /// What the parts that were not run again took when they were, in microseconds.
    kept_us: AtomicU64,
    /// The first part that could not be kept.
    failure: Mutex<Option<Error>>,
}

/// The sums of some parts, by the number and the trials of the part.
type Kept<const N: usize> = BTreeMap<(u64, u64), [u64; N]>;

impl KeptParts {
    /// The parts in this folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn open(folder: PathBuf) -> Result<Self> {
        let cannot = |error| Error::new("cannot make the folder of finished parts").in_file(&folder).because(error);
        fs::create_dir_all(&folder).map_err(cannot)?;
        Ok(KeptParts { folder, kept_us: AtomicU64::new(0), failure: Mutex::new(None) })
    }

    /// The processor time of the parts that were read instead of run.
    ///
    /// # Errors
    ///
    /// A part could not be read or kept.
    pub fn finish(&self) -> Result<Duration> {
        match self.failure.lock().take() {
            Some(error) => Err(error),
            None => Ok(Duration::from_micros(self.kept_us.load(Ordering::Relaxed))),
        }
    }

    fn path(&self, series: &Series) -> PathBuf {
        self.folder.join(format!("{}.{:016x}", series.name.replace(' ', "-"), series.seed))
    }

    fn fail(&self, what: &str, path: &Path, error: std::io::Error) {
        self.failure.lock().get_or_insert_with(|| Error::new(what).in_file(path).because(error));
    }

    /// The whole lines of a series' file. Without a file there are none.
    fn kept<const N: usize>(&self, series: &Series) -> Kept<N> {
        let path = self.path(series);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Kept::new(),
            Err(error) => {
                self.fail("cannot read finished parts", &path, error);
                return Kept::new();
            }
        };
        let mut kept = Kept::new();
        for line in text.lines() {
            let Some(numbers) = line.strip_suffix(LINE_END) else { continue };
            let numbers = numbers.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
            let Ok([part, trial_count, time_us, sums @ ..]) = numbers.as_deref() else { continue };
            let Ok(sums) = sums.try_into() else { continue };
            if *part < series.part_count() && kept.insert((*part, *trial_count), sums).is_none() {
                self.kept_us.fetch_add(*time_us, Ordering::Relaxed);
            }
        }
        kept
    }

    /// Appends a line with one finished part.
    fn keep<const N: usize>(&self, series: &Series, part: (u64, u64), time: Duration, sums: &[u64; N]) {
        let sums = sums.map(|sum| sum.to_string()).join(" ");
        // A line that was cut off is closed by the first byte.
        let line = format!("\n{} {} {} {sums} {LINE_END}\n", part.0, part.1, time.as_micros());
        let path = self.path(series);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            self.fail("cannot keep a finished part", &path, error);
        }
    }
}

impl Series<'_> {
    fn part_count(&self) -> u64 {
        self.trial_count.div_ceil(self.part_size)
    }

    fn part_trials(&self, part: u64) -> u64 {
        self.part_size.min(self.trial_count - part * self.part_size)
    }
}

/// The processor time that this thread has taken; none where the system does not say.
#[must_use]
pub fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

impl Setting {
    /// The sums over the trials of a series: of parts that are kept, and of the others, which `run` is called for with
    /// their seed and their number of trials.
    pub(super) fn in_parts<const N: usize>(
        &self,
        series: &Series,
        mut run: impl FnMut(u64, u64) -> [u64; N],
    ) -> [u64; N] {
        let kept = self.kept.as_ref().map(|progress| progress.kept::<N>(series)).unwrap_or_default();
        let mut sums = [0; N];
        for part in 0..series.part_count() {
            let trial_count = series.part_trials(part);
            let of_part = kept.get(&(part, trial_count)).copied().unwrap_or_else(|| {
                let before = processor_time();
                let of_part = run(number_at(series.seed, part), trial_count);
                if let Some(progress) = &self.kept {
                    progress.keep(series, (part, trial_count), processor_time().saturating_sub(before), &of_part);
                }
                of_part
            });
            sums.iter_mut().zip(of_part).for_each(|(sum, of_part)| *sum += of_part);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;

    /// Sums that differ between parts; the second one counts trials.
    fn sums(seed: u64, trial_count: u64) -> [u64; 2] {
        [(0..trial_count).map(|trial| number_at(seed, trial) >> 40).sum(), trial_count]
    }

    #[test]
    fn a_run_that_was_cut_off_is_continued_and_gives_the_same_sums() {
        let folder = tempfile::tempdir().unwrap();
        let without = Setting { seed: 1, is_quick: true, kept: None };
        let with = || {
            let progress = Arc::new(KeptParts::open(folder.path().join("one")).unwrap());
            Setting { kept: Some(progress), ..without.clone() }
        };
        let series = |trial_count| Series { name: "some keys", seed: 7, trial_count, part_size: 10 };
        let whole = without.in_parts(&series(95), sums);
        assert_eq!(whole[1], 95);

        let first = with().in_parts(&series(45), sums);
        assert_eq!(first, without.in_parts(&series(45), sums));
        let path = fs::read_dir(folder.path().join("one")).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // The last line is cut within its numbers.
        fs::write(&path, &text[..text.len() - 5]).unwrap();

        let run = RefCell::new(Vec::new());
        let counted = |seed, trial_count| {
            run.borrow_mut().push(trial_count);
            sums(seed, trial_count)
        };
        assert_eq!(with().in_parts(&series(95), counted), whole);
        assert_eq!(run.take(), [10, 10, 10, 10, 10, 5], "parts 4 to 9: four were kept");
        let setting = with();
        assert_eq!(setting.in_parts(&series(95), counted), whole);
        assert!(run.take().is_empty());
        assert!(setting.kept.unwrap().finish().is_ok());
    }

    #[test]
    fn a_part_that_cannot_be_kept_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let progress = Arc::new(KeptParts::open(folder.path().join("one")).unwrap());
        let setting = Setting { seed: 1, is_quick: true, kept: Some(Arc::clone(&progress)) };
        fs::remove_dir_all(folder.path()).unwrap();
        setting.in_parts(&Series { name: "some", seed: 7, trial_count: 3, part_size: 10 }, sums);
        assert!(progress.finish().is_err());
        assert!(KeptParts::open(PathBuf::from("/dev/null/one")).is_err());
    }
}
