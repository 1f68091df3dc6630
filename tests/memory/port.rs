//! What a port on the wall clock does for a packet: it allocates nothing and calls nothing of the system.
//!
//! The kernel holds it to that: the thread that pushes has given up every system call but `read` and `write`, and is
//! killed at the first other one. So it can't have waited for a lock either, nor woken anybody. Whether it came to its
//! end says a number.

use crate::allocator::allocations_here;
use crate::process::alone;
use crate::support::say;
use crossbeam::queue::ArrayQueue;
use flowpeel::engine::{Config, Engine, Port, Sink};
use flowpeel::list::List;
use flowpeel::parse::{LinkType, TcpSegment};
use rustix::thread::{SecureComputingMode, set_secure_computing_mode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const EVERY: Duration = Duration::from_millis(200);

/// The packets that are pushed, many times over.
const FRAME_COUNT: usize = 200_000;

/// What the test and the thread that pushes share.
struct Shared {
    /// The wall clock, as the test reads it: the other thread can't rely on doing so without a system call.
    now_ns: AtomicI64,
    is_over: AtomicBool,
    /// The packets pushed, and the allocations meanwhile, once the thread has come to its end.
    pushed: AtomicUsize,
    allocations: AtomicUsize,
    /// The port comes back here.
    port: ArrayQueue<Port>,
}

fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

/// Pushes until it is over, without the system. A thread that calls it is killed.
fn push(shared: &Shared, mut port: Port, frames: &[Vec<u8>], syns: &[TcpSegment]) {
    set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
    let before = allocations_here();
    let mut pushed = 0;
    while !shared.is_over.load(SeqCst) {
        for (at, frame) in frames.iter().enumerate() {
            let now_ns = shared.now_ns.load(SeqCst);
            port.frame(now_ns, LinkType::ETHERNET, frame);
            // A flood beside it: more than the shard takes, so that queues are full at times.
            port.header(now_ns, &syns[at % syns.len()]);
            pushed += 2;
            if at % 1_000 == 0 {
                port.idle(now_ns);
            }
        }
    }
    shared.allocations.store(allocations_here() - before, SeqCst);
    drop(shared.port.push(port));
    shared.pushed.store(pushed, SeqCst);
    // The kernel ends the thread: it may not even end by itself.
    std::thread::park();
}

fn assert_port_is_alone() {
    let mut traffic = flowpeel_traffic::Traffic::new(flowpeel_traffic::TrafficConfig::mixed(4, 20_000)).unwrap();
    let frames = std::iter::from_fn(|| traffic.next_frame().map(|frame| frame.bytes.to_vec()));
    let frames: Vec<_> = frames.take(FRAME_COUNT).collect();
    let syn = TcpSegment::between("10.9.0.1:1".parse().unwrap(), "10.9.0.2:80".parse().unwrap()).unwrap();
    let syns = (1..60_000).map(|src_port| TcpSegment { src_port, flags: TcpSegment::SYN, ..syn });
    let syns: Vec<_> = syns.collect();
    let lists = Arc::new(AtomicUsize::new(0));
    let listed = Arc::clone(&lists);
    let sink = Sink::lists(move |_: &List| {
        listed.fetch_add(1, SeqCst);
        Ok(())
    });
    let config = Config { every: Some(EVERY), shards: 1, ..Config::live_defaults() };
    let (engine, mut ports) = Engine::live(&config, 2, sink).unwrap();
    let shared = Arc::new(Shared {
        now_ns: AtomicI64::new(wall_ns()),
        is_over: AtomicBool::new(false),
        pushed: AtomicUsize::new(0),
        allocations: AtomicUsize::new(0),
        port: ArrayQueue::new(1),
    });
    let (theirs, port) = (Arc::clone(&shared), ports.remove(0));
    // Nobody waits for this thread: it ends by force.
    drop(std::thread::spawn(move || push(&theirs, port, &frames, &syns)));
    let began = Instant::now();
    while shared.pushed.load(SeqCst) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "the port has called the system, and was killed");
        shared.now_ns.store(wall_ns(), SeqCst);
        // Several intervals, and the clock's cuts.
        shared.is_over.store(lists.load(SeqCst) >= 6, SeqCst);
        std::thread::sleep(Duration::from_micros(200));
    }
    let port = shared.port.pop().expect("it comes back before the number");
    let counts = port.counts();
    drop((port, ports));
    let summary = engine.stop().unwrap();
    let (pushed, allocations) = (shared.pushed.load(SeqCst), shared.allocations.load(SeqCst));
    say::say(&format!(
        "port: {pushed} packets without a system call, {allocations} allocations, {} lists, {} signals of which {} found a queue full",
        summary.lists, counts.signals.signals, counts.queue_full
    ));
    assert_eq!((allocations, summary.packets), (0, pushed as u64));
    assert!(pushed >= FRAME_COUNT && summary.lists >= 6);
}

#[test]
fn a_port_neither_allocates_nor_calls_the_system() {
    alone("port::a_port_neither_allocates_nor_calls_the_system", assert_port_is_alone);
}
