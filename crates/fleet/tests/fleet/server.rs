//! A real nats-server on loopback, with a directory of its own.

use async_nats::jetstream;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server has to start.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// A server with JetStream. It ends with this.
pub(crate) struct Server {
    place: TempDir,
    port: u16,
    child: Option<Child>,
}

/// The program, if it is installed; otherwise says that the test is skipped.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has it where only root looks.
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = places.map(|place| place.join("nats-server")).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: nats-server is not installed");
    }
    found
}

impl Server {
    /// A server with this beside what every server has in its configuration; `None` if it is not installed.
    pub(crate) fn start(configuration: &str) -> Option<Self> {
        program()?;
        let place = tempfile::tempdir().unwrap();
        // Whoever takes the port in between makes the start fail.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let store = place.path().join("store");
        let text =
            format!("listen: 127.0.0.1:{port}\njetstream {{ store_dir: \"{}\" }}\n{configuration}\n", store.display());
        fs::write(place.path().join("nats.conf"), text).unwrap();
        let mut server = Server { place, port, child: None };
        server.restart();
        Some(server)
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Does something at the broker, and waits for it.
    pub(crate) fn on_jetstream(&self, work: impl AsyncFnOnce(jetstream::Context)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = async_nats::ConnectOptions::new().connect(self.url()).await.unwrap();
            work(jetstream::new(client)).await;
        });
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it, with what it had on the disk.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let log = fs::File::create(self.place.path().join("log")).unwrap();
        let mut command = Command::new(program().unwrap());
        command.arg("-c").arg(self.place.path().join("nats.conf")).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log = || fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < START_PATIENCE, "nats-server does not start: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
