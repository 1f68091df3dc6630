//! Frames that are whole, changed, forged and made up.

use super::*;
use crate::key::FleetKey;
use crate::sample::noise;
use proptest::prelude::*;

fn fleet() -> FleetKey {
    FleetKey::new(Secret::new([7; 16]))
}

fn key() -> RouterKey {
    fleet().of_router("edge")
}

fn place() -> Place {
    Place {
        router: "edge".to_owned(),
        key_id: KeyId([3; 16]),
        run: RunId { run: 99, origin_ns: Some(-5) },
        interval: 4,
        end: (1 << 21, 17),
        name: SnapshotName::parse("snapshot-20260101T000010Z_002.flowpeel").unwrap(),
        partition: 5,
    }
}

fn image(head: &[u8], tables: &[u8], half_open: &[u8]) -> Hashed {
    Hashed::new(PartitionImage { head: head.to_vec(), tables: tables.to_vec(), half_open: half_open.to_vec() })
}

fn read(frame: &[u8]) -> Result<FrameStart, Refusal> {
    FrameStart::read(frame, ("edge", 5), KeyId([3; 16]), &key())
}

fn sealed(place: &Place, image: &Hashed, base: Option<&Hashed>, key: &RouterKey) -> Vec<u8> {
    seal(place, image, base, Keys { secret: &Secret::REPLAY, router: key }).unwrap()
}

/// The frame with its tag as the holder of the key would make it.
fn signed_again(mut frame: Vec<u8>) -> Vec<u8> {
    let header_size = u32::from_le_bytes(std::array::from_fn(|at| frame[8 + at])) as usize;
    let signed = PREAMBLE_SIZE + header_size;
    let tag = tag(&frame[..signed], &key()).sum();
    frame[signed..signed + TAG_SIZE].copy_from_slice(&tag);
    frame
}

/// Where the partition stands in a header of this place.
fn partition_at(place: &Place) -> usize {
    PREAMBLE_SIZE + 2 + 16 + 1 + place.router.len() + 8 + 9 + 8 + 16 + 1 + place.name.to_string().len()
}

#[test]
fn a_frame_by_itself_and_one_that_builds_on_another_open() {
    let (before, now) = (image(b"head", &[1; 5_000], b"half"), image(b"longer head", &[2; 5_000], b""));
    for base in [None, Some(&before)] {
        let frame = sealed(&place(), &now, base, &key());
        let start = read(&frame).unwrap();
        assert_eq!((&start.place, start.frame_size(), start.base), (&place(), frame.len(), base.map(|base| base.hash)));
        assert_eq!(start.image(&frame, base, &Secret::REPLAY).unwrap(), now);
    }
    let frame = sealed(&place(), &now, Some(&before), &key());
    let start = read(&frame).unwrap();
    for other in [None, Some(&now)] {
        assert_eq!(start.image(&frame, other, &Secret::REPLAY), Err(Refusal::Base));
    }
}

#[test]
fn equal_images_give_equal_frames_and_what_did_not_change_costs_nothing() {
    let noise = noise(100_000);
    let before = image(b"head", &noise, b"");
    let mut tables = noise.clone();
    tables[50_000] ^= 1;
    let now = image(b"head", &tables, b"");
    let frame = sealed(&place(), &now, Some(&before), &key());
    assert_eq!(frame, sealed(&place(), &now, Some(&before), &key()));
    assert!(frame.len() < 500 && sealed(&place(), &now, None, &key()).len() > 50_000);
}

#[test]
fn a_changed_bit_is_refused() {
    let (before, now) = (image(b"head", &[1; 500], b"half"), image(b"head", &[2; 500], b"open"));
    let frame = sealed(&place(), &now, Some(&before), &key());
    for at in 0..frame.len() {
        for bit in 0..8 {
            let mut changed = frame.clone();
            changed[at] ^= 1 << bit;
            let opened = read(&changed).and_then(|start| start.image(&changed, Some(&before), &Secret::REPLAY));
            assert!(opened.is_err(), "bit {bit} of byte {at}");
        }
    }
    for size in 0..frame.len() {
        let cut = &frame[..size];
        assert!(read(cut).and_then(|start| start.image(cut, Some(&before), &Secret::REPLAY)).is_err(), "{size} bytes");
    }
}

#[test]
fn what_another_has_made_is_refused_with_the_reason() {
    let now = image(b"head", &[2; 500], b"open");
    let sealed = |place: &Place, key: &RouterKey| sealed(place, &now, None, key);
    let of_west = fleet().of_router("west");
    assert_eq!(read(&sealed(&place(), &of_west)).unwrap_err(), Refusal::Tag, "another router's key");
    let of_other_fleet = FleetKey::new(Secret::new([8; 16])).of_router("edge");
    assert_eq!(read(&sealed(&place(), &of_other_fleet)).unwrap_err(), Refusal::Tag);
    let other_secret = Place { key_id: KeyId([4; 16]), ..place() };
    assert_eq!(read(&sealed(&other_secret, &key())).unwrap_err(), Refusal::Secret);
    for other in [Place { router: "west".to_owned(), ..place() }, Place { partition: 4, ..place() }] {
        assert_eq!(read(&sealed(&other, &key())).unwrap_err(), Refusal::Subject, "{other:?}");
    }
    let mut of_later = sealed(&place(), &key());
    of_later[6] = 2;
    assert_eq!(read(&signed_again(of_later)).unwrap_err(), Refusal::Version);
    let mut of_other_snapshots = sealed(&place(), &key());
    of_other_snapshots[PREAMBLE_SIZE] += 1;
    assert_eq!(read(&signed_again(of_other_snapshots)).unwrap_err(), Refusal::Version);
    assert_eq!(read(b"something else").unwrap_err(), Refusal::NoFrame);
}

#[test]
fn what_a_later_version_adds_to_the_header_is_passed_over() {
    let now = image(b"head", &[2; 500], b"open");
    let frame = sealed(&place(), &now, None, &key());
    let header_size = u32::from_le_bytes(std::array::from_fn(|at| frame[8 + at])) as usize;
    let mut later = frame.clone();
    later[4] = 2;
    later[8..12].copy_from_slice(&(header_size as u32 + 3).to_le_bytes());
    later.splice(PREAMBLE_SIZE + header_size..PREAMBLE_SIZE + header_size, *b"new");
    let later = signed_again(later);
    assert_eq!(read(&later).unwrap().image(&later, None, &Secret::REPLAY).unwrap(), now);
}

/// Even who holds a router's key costs a reader no more than a frame may have.
#[test]
fn claims_beyond_any_frame_are_refused_before_anything_is_kept() {
    let now = image(b"head", &[2; 500], b"open");
    let frame = sealed(&place(), &now, None, &key());
    let mut long_header = frame.clone();
    long_header[8..12].copy_from_slice(&(2u32 << 30).to_le_bytes());
    assert_eq!(read(&long_header).unwrap_err(), Refusal::Size);
    let sizes = partition_at(&place()) + 1;
    for at in [sizes, sizes + 4, sizes + 8, sizes + 12, sizes + 16 + 32 + 1] {
        let mut claim = frame.clone();
        claim[at..at + 4].copy_from_slice(&(2u32 << 30).to_le_bytes());
        assert_eq!(read(&signed_again(claim)).unwrap_err(), Refusal::Size, "at {at}");
    }
    // One byte more or less than was said.
    for size in [499u32, 501] {
        let mut claim = frame.clone();
        claim[sizes + 8..sizes + 12].copy_from_slice(&size.to_le_bytes());
        let claim = signed_again(claim);
        assert_eq!(read(&claim).unwrap().image(&claim, None, &Secret::REPLAY), Err(Refusal::Contents));
    }
}

proptest! {
    #[test]
    fn any_image_opens_as_it_was(
        parts in [proptest::collection::vec(any::<u8>(), 0..300), proptest::collection::vec(any::<u8>(), 0..300)],
        before in proptest::collection::vec(any::<u8>(), 0..300),
        router in "\\PC{1,12}",
        partition in 0..PARTITION_COUNT,
        origin_ns: Option<i64>,
    ) {
        let place = Place { router: router.clone(), partition, run: RunId { run: 0, origin_ns }, ..place() };
        let key = fleet().of_router(&router);
        let (before, now) = (image(&before, &before, &[]), image(&parts[0], &parts[1], &parts[0]));
        for base in [None, Some(&before)] {
            let frame = sealed(&place, &now, base, &key);
            let start = FrameStart::read(&frame, (&router, partition), place.key_id, &key).unwrap();
            prop_assert_eq!(&start.place, &place);
            prop_assert_eq!(start.image(&frame, base, &Secret::REPLAY).unwrap(), now.clone());
        }
    }

    #[test]
    fn no_bytes_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..300, is_frame: bool) {
        let mut frame = bytes;
        if is_frame {
            let now = image(b"head", &[2; 50], b"open");
            let mut sealed = sealed(&place(), &now, None, &key());
            let end = (at + frame.len()).min(sealed.len()).min(PREAMBLE_SIZE + 200);
            if at < end && at >= PREAMBLE_SIZE {
                sealed[at..end].copy_from_slice(&frame[..end - at]);
                sealed = signed_again(sealed);
            }
            frame = sealed;
        }
        if let Ok(start) = read(&frame) {
            drop(start.image(&frame, None, &Secret::REPLAY));
        }
    }
}
