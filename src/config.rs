//! Every limit, with its name and its reason; relations between limits are asserted at compile time.

use std::time::Duration;

// Capture: what a file may ask for.

/// Bytes asked of the input at once: large enough that the system call costs nothing beside the copy, small enough to
/// stay in the cache, beside what else goes through it, while the packets are parsed.
pub const CAPTURE_READ_SIZE: usize = 256 << 10;

/// The longest packet a capture file may hold, in bytes: what libpcap and Wireshark accept too. A longer one means that
/// the file is damaged.
pub const PACKET_SIZE_MAX: usize = 256 << 10;

/// The longest pcapng block that is held whole, in bytes: the longest packet and two options of the longest kind.
/// Only packets and interface descriptions are; other blocks may have any length, because they are skipped as they come.
pub const BLOCK_SIZE_MAX: usize = 400 << 10;

/// The longest option of a pcapng block, in bytes: its length is a 16-bit number.
const BLOCK_OPTION_SIZE_MAX: usize = (1 << 16) + 4;
const _: () = assert!(BLOCK_SIZE_MAX >= PACKET_SIZE_MAX + 2 * BLOCK_OPTION_SIZE_MAX);

/// A page of memory on most machines, in bytes. The kernel copies page by page, on some processors at a third of the speed to a place
/// that is a few bytes further into a page than what it copies, so reads begin with one.
pub const READ_PAGE_SIZE: usize = 4 << 10;

/// The capture buffer, in bytes: the longest block, wherever in a page it begins and the buffer does. Behind the beginning of a long one
/// a read is as long as there is room for,
pub const CAPTURE_BUFFER_SIZE: usize = BLOCK_SIZE_MAX + 2 * READ_PAGE_SIZE;
// and behind that of an IP packet, of 64 KiB at most, it is whole.
const _: () = assert!(CAPTURE_BUFFER_SIZE >= 2 * READ_PAGE_SIZE + (64 << 10) + CAPTURE_READ_SIZE);

/// Bytes of compressed input held at once: little, since a decoder that meets damage loses what it made of them.
pub const COMPRESSED_READ_SIZE: usize = 64 << 10;

/// The largest window a zstd file may ask for, as a power of two: 128 MiB, which is what `zstd -d` accepts. Memory for
/// it is taken at the file's word, so this is the most that a hostile one gets.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Interfaces that one section of a pcapng file may declare: as many as the 16-bit number in its oldest packet block
/// can name.
pub const CAPTURE_INTERFACE_COUNT_MAX: usize = 1 << 16;

/// Unreadable link types of one capture whose packets are counted apart; more than this are counted together.
pub const SKIPPED_LINK_TYPE_COUNT_MAX: usize = 16;

// Live capture.

/// Bytes of a packet that `--capture headers` and `--capture flags` take: 22 of Ethernet with two tags, 40 of IPv6, 60 of the
/// longest TCP header, and 70 for extension headers, an MPLS stack or another Ethernet header between them.
pub const LIVE_SNAP_SIZE: u32 = 192;

/// Bytes of a packet that `--tunnels` takes: the headers above twice, with those of a tunnel or two between them.
pub const LIVE_TUNNEL_SNAP_SIZE: u32 = 512;

const _: () = assert!(LIVE_SNAP_SIZE >= 22 + 40 + 60 && LIVE_TUNNEL_SNAP_SIZE >= 2 * LIVE_SNAP_SIZE);

/// VLAN tags in a frame that the in-kernel filter follows; the one that the kernel takes out of the frame is not counted.
/// Frames with more of them pass, and the parser decides.
pub const LIVE_FILTER_TAG_COUNT: u32 = 2;

/// MPLS labels that the in-kernel filter follows; frames with more of them pass.
pub const LIVE_FILTER_LABEL_COUNT: u32 = 3;

/// Instructions of a `--bpf` program at most: what the kernel takes (BPF_MAXINSNS).
pub const BPF_INSTRUCTION_COUNT_MAX: usize = 4096;

/// The longest `--bpf` file, in bytes: so many instructions, each of the longest numbers.
pub const BPF_FILE_SIZE_MAX: u64 = 32 * (BPF_INSTRUCTION_COUNT_MAX as u64 + 1);

/// Bytes of a block of the ring. The kernel hands over whole blocks, and a packet lies in one of them: it holds twice the
/// longest IP packet. Smaller ones would make a ring that nobody reads last longer, since slow traffic fills no block either.
pub const RING_BLOCK_SIZE: u32 = 128 << 10;

const _: () = assert!(RING_BLOCK_SIZE.is_power_of_two() && RING_BLOCK_SIZE as usize <= PACKET_SIZE_MAX);

/// The size of the ring of each capture thread unless something else is asked for, in bytes: at a million packets a second,
/// of which 250 bytes are kept each, what comes in a sixteenth of a second; at any lower rate, 128 blocks that are handed over
/// every 10 ms, so more than a second.
pub const RING_SIZE_DEFAULT: u64 = 16 << 20;

/// The smallest ring, in bytes: while one block is read and one is filled, two are spare.
pub const RING_SIZE_MIN: u64 = 4 * RING_BLOCK_SIZE as u64;

/// The largest ring, in bytes: its memory can not be swapped out, and a reader that is a second late never catches up.
pub const RING_SIZE_MAX: u64 = 1 << 30;

const _: () = assert!(RING_SIZE_MIN <= RING_SIZE_DEFAULT && RING_SIZE_DEFAULT <= RING_SIZE_MAX);
const _: () = assert!(RING_SIZE_MAX.is_multiple_of(RING_BLOCK_SIZE as u64));

/// After so many milliseconds the kernel hands a block over even if it is not full: packets are seen that soon.
pub const RING_RETIRE_MS: u32 = 10;

/// Capture threads on one interface at most: the kernel shares packets out by a hash, and no router has more cores for it.
pub const FANOUT_COUNT_MAX: usize = 64;

/// The first pause before an interface that is away is looked for again, in milliseconds: a flapping one is back that soon.
pub const INTERFACE_RETRY_MIN_MS: u64 = 50;

/// The longest pause before it is looked for again, in milliseconds: pauses double up to it.
pub const INTERFACE_RETRY_MAX_MS: u64 = 2_000;

const _: () = assert!(INTERFACE_RETRY_MIN_MS <= INTERFACE_RETRY_MAX_MS);

// Parse.

/// How many steps from layer to layer the parser follows in one frame. A step reads a header, a tag, a label or an
/// extension header, or decides by a field of one what comes next.
///
/// Plain TCP takes 5, a mirrored frame that holds a VXLAN tunnel 16, a tagged pseudowire around the same about 24: twice
/// that is reached only by frames made to waste time.
pub const LAYER_COUNT_MAX: usize = 48;

// Time.

/// The length of a tick: 100 ms. Start times and timeouts are kept no finer.
pub const TICK_NS: i64 = 100_000_000;

/// Bits of the start time that the filter keeps, in ticks: they wrap after 29 hours, and who reads them knows the time to
/// within that.
pub const TICK_BITS: u32 = 20;

/// A packet this much older than the newest starts a new time base: no network delays packets for so long, so the clock
/// was set, or another capture begins.
pub const CLOCK_STEP_BACK_MAX_NS: i64 = 60_000_000_000;

/// A packet this much newer than the newest before it starts a new time base, and counts as this much later: longer
/// than every timeout, and short enough for the 32 bits of a tick that half-open records keep.
pub const CLOCK_LEAP_MAX_NS: i64 = 30 * 86_400_000_000_000;

/// Time bases whose wall time is remembered: each is a step of the capture's clock, and a clock that steps more often than
/// this within the life of a connection tells no time anyway.
pub const TIME_BASES_MAX: usize = 64;

// Signals and queues.

/// While a handshake may have been lost, one in so many of the other TCP packets is looked at: a tenth of what looking at
/// all would cost, and an ordinary connection is found within its next few packets.
pub const SAMPLE_INTERVAL_PACKETS: u32 = 16;

/// Signals in a block: enough that the queue costs little a signal, few enough that a block stays in the first-level cache.
pub const BLOCK_SIGNAL_COUNT: usize = 64;

/// Blocks that wait in a queue at most: what a shard does in some milliseconds, the time it may be away. And more of them than a
/// core's own cache holds (a megabyte or two): a block that has gone from there to the cache that all share is read in half the time.
pub const QUEUE_BLOCKS_MAX: usize = 384;

/// Marks that find room in a queue beside the blocks: an end of an interval and a new time base, of the few intervals that
/// may be under way ([`PENDING_INTERVALS_MAX`]).
pub const QUEUE_MARKS_MAX: usize = 16;

/// How long a live capture waits for room in a full queue, in microseconds, before it drops a block of signals: the kernel's
/// ring holds a good deal more than comes in meanwhile.
pub const QUEUE_WAIT_MAX_US: u64 = 2_000;

/// How long a shard waits for older signals of a capture thread that is silent, in nanoseconds: longer than the kernel keeps
/// packets back before it shows a block of its ring that is not full.
pub const MERGE_PATIENCE_NS: i64 = 15_000_000;

/// Blocks at which a sleeping shard is woken: a wake-up costs as much as working off two, and a shard close behind the capture
/// thread reads out of that one's cache. What is left of the queue holds what comes in until the shard is there.
pub const QUEUE_WAKE_BLOCKS: usize = 160;

/// The longest that either end of a queue sleeps before it looks for itself: a wake-up that is lost for whatever reason
/// costs no more.
pub const QUEUE_SLEEP_MAX: Duration = Duration::from_millis(20);

/// How long a shard sleeps while it waits out the silence of a capture thread: a fifteenth of [`MERGE_PATIENCE_NS`], so
/// that it ends that little late.
pub const MERGE_SLEEP: Duration = Duration::from_millis(1);

/// How far one capture thread's packets may be ahead of another's, in nanoseconds: half a minute, more than lies in any
/// kernel ring that loses nothing. A handshake that is older than its time stamp can tell looks young again for this
/// long and for its timeout, once in 73 minutes.
pub const CAPTURE_AHEAD_MAX_NS: i64 = 1 << 35;

/// How full the sets of the watch may become on average, in percent: at this load hardly one of its sets is full.
pub const WATCH_LOAD_PERCENT: usize = 75;

const _: () = assert!(QUEUE_WAKE_BLOCKS < QUEUE_BLOCKS_MAX / 2);
const _: () = assert!(QUEUE_MARKS_MAX >= 2 * (PENDING_INTERVALS_MAX + 1));

// Connections.

/// Bits of a connection's hash that choose its partition.
pub const PARTITION_BITS: u32 = 3;

/// The state is split into so many partitions by the key's hash, whatever the number of shards: lists and counts are then
/// the same with one shard and with eight.
pub const PARTITION_COUNT: usize = 1 << PARTITION_BITS;

/// Standard deviations that each partition has room for beside its even share of items: partitions do not share evenly, and
/// this is more than chance brings.
pub const PARTITION_DEVIATIONS: u64 = 6;

/// Items that each partition has room for besides, so that a share of almost none does too.
pub const PARTITION_ITEMS_MIN: u64 = 16;

/// The most shards: there are no more partitions to work on.
pub const SHARDS_MAX: usize = PARTITION_COUNT;

/// Bits of a connection's hash that tell it from the others in its buckets of the filter: a connection that is not there is
/// taken for another about once in 10^8 look-ups.
pub const FINGERPRINT_BITS: u32 = 30;

/// How full the filter may become with all the connections that can be established, in percent: at 97 one in
/// thirty thousand of them finds no place, and one in fifty while it is half-open; at 93 all find one, half-open or not.
pub const FILTER_ESTABLISHED_PERCENT: u64 = 93;

/// How full it may become with everything it is made for, what has just closed included: where there is no place that makes room, and
/// lingers less.
pub const FILTER_LOAD_PERCENT: u64 = 98;

/// The filter has places for one in so many of the half-open connections there may be, or for those that close in an interval where
/// these are more, beside all that can be established: only a flood needs more, and takes the places of what has closed and of its own.
pub const HALF_OPEN_PLACES_DIVISOR: u64 = 8;

const _: () = assert!(FILTER_ESTABLISHED_PERCENT <= FILTER_LOAD_PERCENT && FILTER_LOAD_PERCENT < 100);

/// The part of the filter's places that connections seen from one side only may take, as one in so many: a flood can
/// fake them, and must not fill it.
pub const ONE_WAY_PLACES_DIVISOR: u64 = 8;

/// How long a closed connection lingers, in ticks of 100 ms: late packets and repeats come within seconds.
pub const LINGER_TICKS: u32 = 100;

/// How long a half-open connection is kept unless something else is asked for: longer than a client waits.
pub const SYN_TIMEOUT_DEFAULT_S: u64 = 60;

/// How long each of several capture threads remembers the SYNs it read, in ns: a long round trip, and what lies in rings meanwhile. The
/// shorter, the more of them in a second before any is forgotten too soon.
pub const SEEN_SYN_TIMEOUT_NS: i64 = 4_000_000_000;

/// The longest `--syn-timeout`, in ticks of 100 ms: ten minutes, far beyond the last repeat of any SYN.
pub const SYN_TIMEOUT_MAX_TICKS: u64 = 6_000;

/// The connections that are tracked unless something else is asked for.
pub const CONNECTIONS_DEFAULT: u64 = 500_000;

/// The fewest connections that can be asked for: fewer would save nothing.
pub const CONNECTIONS_MIN: u64 = 1_000;

/// The most connections, and the most openings and closings an interval, that can be asked for: a subtable's cells are
/// chosen by 24 bits of a hash, and a partition's share of more would crowd together.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// Half-open connections are kept for half as many as there may be connections, and for no fewer than this: a busy server's
/// legitimate ones need as much.
pub const HALF_OPEN_MIN: u64 = 1 << 14;

/// They are kept for no more than this: at a million attempts a second the oldest is then a quarter of a second old
/// when it has to go, longer than most round trips.
pub const HALF_OPEN_MAX: u64 = 1 << 18;

/// Candidates, connections of which one side was seen and the start was not, are kept for as many as half-open ones are by default,
/// divided by this: the busy ones are found within a second of the start, and then there are few.
pub const CANDIDATES_DIVISOR: u64 = 2;

/// How long a candidate waits for a packet of its other side, in ticks of 100 ms: ten minutes, in which a sample of one in 16
/// meets both sides of a connection that sends a packet every ten seconds.
pub const CANDIDATE_TIMEOUT_TICKS: u64 = 6_000;

/// A half-open ring is compacted when it holds this many times what was of use at the last compaction: the memory that
/// it goes through again and again then stays small enough for the caches.
pub const HALF_OPEN_FILL_FACTOR: usize = 4;

/// A half-open ring is not compacted before it holds this many units of 24 bytes: 12 KiB, which the first-level cache
/// holds anyway.
pub const HALF_OPEN_FILL_UNITS_MIN: usize = 1 << 9;

/// A full half-open ring is compacted if at least one in this many of its units is of no more use, so that each record
/// is moved a few times at most; otherwise its oldest records are evicted.
pub const HALF_OPEN_OVER_DIVISOR: usize = 4;

/// Entries that are tried for a chain of two moves to place a half-open connection: each takes seven look-ups, with
/// which no flood is to keep a shard busy.
pub const HALF_OPEN_MOVES_TRIED_MAX: usize = 3;

/// The most records that are taken off a half-open ring together: as many as hide the memory's latency behind each
/// other.
pub const HALF_OPEN_BATCH_MAX: usize = 32;

/// The fewest, in a small ring.
pub const HALF_OPEN_BATCH_MIN: usize = 8;

/// The part of a ring that is taken off together, as one in this many: making room in a small ring does not empty it.
pub const HALF_OPEN_BATCHES_IN_RING: usize = 64;

const _: () = assert!(HALF_OPEN_BATCH_MIN <= HALF_OPEN_BATCH_MAX);

/// `--pickup` unless something else is asked for, when live: the same sample that makes good lost handshakes.
pub const PICKUP_LIVE: u32 = SAMPLE_INTERVAL_PACKETS;

/// The rarest sample that can be asked for: of fewer packets hardly a connection shows both its sides in time.
pub const PICKUP_MAX: u32 = 1 << 16;

const _: () = assert!(SYN_TIMEOUT_MAX_TICKS < (CLOCK_LEAP_MAX_NS / TICK_NS) as u64);
const _: () = assert!(CANDIDATE_TIMEOUT_TICKS <= 2 * SYN_TIMEOUT_MAX_TICKS, "a delta must be able to tell its start");
const _: () = assert!((LINGER_TICKS as u64) < SYN_TIMEOUT_MAX_TICKS);
const _: () = assert!(HALF_OPEN_MIN <= HALF_OPEN_MAX);
const _: () = assert!(
    (HALF_OPEN_MAX + HALF_OPEN_MAX / CANDIDATES_DIVISOR) / (PARTITION_COUNT as u64) < 1 << TICK_BITS,
    "where its record stands has to fit into an entry in place of its tick"
);
const _: () = assert!(SYN_TIMEOUT_DEFAULT_S * 10 <= SYN_TIMEOUT_MAX_TICKS);

// Records of closed connections and their archive.

/// Records in a block: as for signals, enough that the queue costs little a record.
pub const RECORD_BLOCK_COUNT: usize = 64;

/// Blocks of records that wait for the archive at most: half a second at 100,000 closings a second, longer than a disk is
/// usually away.
pub const RECORD_QUEUE_BLOCKS_MAX: usize = 1_024;

/// How long a record waits for its block to fill, in ticks: a second, so that a crash loses no more.
pub const RECORD_DELAY_MAX_TICKS: u64 = 10;

/// Packets of a replay between two cuts of the archive: so many records are sorted together at most, some megabytes.
pub const RECORD_CUT_PACKETS: u64 = 1 << 16;

/// Entries in a block of an archive: enough that compression finds what there is to find, and no more than damage may cost.
pub const ARCHIVE_BLOCK_ENTRIES_MAX: usize = 8_192;

/// The level at which archives are compressed: the default of zstd.
pub const ARCHIVE_COMPRESSION_LEVEL: i32 = 3;

/// The size at which a segment is sealed unless something else is asked for, in bytes: some 80,000 connections, which are read in
/// some milliseconds.
pub const SEGMENT_SIZE_DEFAULT: u64 = 1 << 20;

/// The smallest segment that can be asked for: smaller ones are mostly filters.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 14;

/// The largest: what is in it stands in memory until it is sealed, six times as large.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 20;

/// The fewest bytes that an entry is reckoned to take in a segment: what says how many entries there are in one at most.
pub const SEGMENT_ENTRY_SIZE_MIN: u64 = 8;

/// The age at which a segment is sealed unless something else is asked for.
pub const SEGMENT_AGE_DEFAULT: Duration = Duration::from_secs(3_600);

/// Segments that have one B-field together: those that have none yet are asked one by one, and each is wrong once in 2,000 times.
pub const ARCHIVE_GROUP_SEGMENTS: u32 = 32;

/// How often a B-field names a segment for a connection that is not there: seldom, even where thousands of them are asked.
pub const ARCHIVE_INDEX_FALSE_POSITIVE_RATE: f64 = 1.0 / 4_096.0;

/// What a B-field takes at most for a connection, in bytes, at that rate and so many segments.
pub const ARCHIVE_INDEX_ENTRY_SIZE: u64 = 5;

/// How long what is recorded live waits before it is put on the disk: so much a crash may lose.
pub const ARCHIVE_FLUSH_DELAY: Duration = Duration::from_secs(1);

/// How often the archive of a live capture is told what is open: so old may be what a crash leaves.
pub const ARCHIVE_OPEN_INTERVAL: Duration = Duration::from_secs(60);

/// Parts of a list of open connections, of [`ARCHIVE_BLOCK_ENTRIES_MAX`] each, that wait for the archive.
pub const ARCHIVE_OPEN_CHUNKS_MAX: usize = 2;

/// Connections older than half a wrap of the tick whose starts are remembered: some megabytes.
pub const ARCHIVE_AGES_MAX: usize = 1 << 16;

const _: () = assert!(SEGMENT_SIZE_MIN <= SEGMENT_SIZE_DEFAULT && SEGMENT_SIZE_DEFAULT <= SEGMENT_SIZE_MAX);
const _: () = assert!(RECORD_CUT_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

// Deltas and the list.

/// The openings and closings in an interval that tables are made for unless something else is asked for.
pub const CHURN_DEFAULT: u64 = 100_000;

/// The least churn that tables are made for: smaller tables fail by chance.
pub const CHURN_MIN: u64 = 1_000;

/// An interval's churn goes through tables that are made for one part of it in so many: memory of tables is what a router can spare
/// least, and handing one over costs a look at its cells.
pub const DELTA_PARTS: u64 = 4;

/// Tables are made for so many changes at least, unless a partition's whole churn is less: two connections with the same four
/// cells, which list only once one of them has closed, come with the square of how small a table is.
pub const DELTA_ITEMS_MIN: u64 = 3_300;

/// How much of what it plainly lists a delta may hold before it is handed over, in percent: so it all but always lists, and holds
/// connections with the same four cells once in a million times.
pub const DELTA_LOAD_PERCENT: u64 = 50;

/// How much of what they plainly list the tables of snapshots hold when as much has changed as they are made for, in percent.
pub const SNAPSHOT_LOAD_PERCENT: u64 = 90;

/// Empty deltas of each partition beside the one in use, where a shard waits for the list or deltas hold a whole interval's churn,
pub const DELTA_SPARES_WHOLE: usize = 1;

/// and where neither is so: three, and a fourth that goes on filling, hold most of an interval's churn while a list is written.
pub const DELTA_SPARES_LIVE: usize = 3;

/// The longest `--every`, in days: whoever wants one list of more wants the list at the end.
pub const EVERY_MAX_DAYS: u64 = 366;

/// The longest time that one delta may span, in ticks: half of what the start time in a value can tell, the other half
/// being for connections that were half-open when the delta began.
pub const DELTA_SPAN_MAX_TICKS: u64 = 1 << (TICK_BITS - 1);

/// What one listed connection takes at most, in bytes: 48 for the key and the start, 6 in an index that has just grown, and 4
/// in the part of the list that is being sorted. The 48 are those of IPv6 where starts are years apart. Elsewhere they are 46 with
/// VLAN tags in keys, and 42 without; for IPv4 it is 24, 22 or 18.
pub const LIST_ENTRY_SIZE: u64 = 48 + 6 + 4;

/// The most connections that are listed in one family of one partition: an index has 24 bits for each.
pub const LISTED_MAX: usize = 15_000_000;

/// A list is sorted in so many parts: each costs a scan of all connections, 2 ns for each of them, and takes a part of their
/// memory.
pub const LIST_PARTS: usize = 16;

/// Connections of the smallest such part: less memory is not worth a scan.
pub const LIST_PART_COUNT_MIN: usize = 1 << 15;

/// Connections that are looked at to see where parts begin: no part is then a quarter longer than the others by chance.
pub const LIST_SAMPLE_COUNT: usize = 1 << 12;

/// Connections of the shortest last list that two threads write: some milliseconds, a hundred times what it takes to start one.
pub const LIST_TWO_THREADS_MIN: u64 = 1 << 15;

/// Rows that one thread hands the other at once: some 50 microseconds of work, and lines that stay in the second-level cache.
pub const LIST_CHUNK_ROWS: usize = 256;

/// Such chunks that wait for it, at most: a megabyte, which keeps it busy for two milliseconds of the five in which the next part of a
/// list of a million is picked out and sorted.
pub const LIST_CHUNKS_AHEAD: usize = 40;

// Partitions do not share evenly.
const _: () = assert!(CONNECTIONS_MAX / PARTITION_COUNT as u64 * 9 / 8 <= LISTED_MAX as u64);

/// The largest count in a cell that is taken for one key that was added several times. Errors make twos, seldom more,
/// and every factor of two in a count multiplies the keys that have to be tried.
pub const AGGREGATE_COUNT_MAX: u32 = 3;

/// Bits that dividing a key sum by an even count may have lost: each doubles the keys that are tried, and with so many that takes
/// some milliseconds. An IPv4 key of all counts that a sum of routers may have is told, an IPv6 key that 31 routers saw.
pub const AGGREGATE_LOST_BITS_MAX: u32 = 20;

/// Keys that are tried for such counts for each cell of a table, on average: as many as it takes when each of a thousand routers sees
/// what it likes,
pub const AGGREGATE_TRIES_PER_CELL: u64 = 1 << 12;

/// and in any table: some seconds, enough for five hundred IPv6 keys that 16 routers saw.
pub const AGGREGATE_TRIES_MIN: u64 = 1 << 28;

/// One division takes no more than this part of the tries that are left: those that take few are made even where those that take
/// many have been in vain.
pub const AGGREGATE_TRIES_SHARE: u64 = 16;

/// Openings and closings against the list that are remembered in each partition and family: a hundred times as many as
/// filter errors are to be expected in a billion packets.
pub const EXTRANEOUS_MAX: usize = 1_024;

/// Passes over the list to recover one delta: differences that overlap take one pass each, and more than a few never do.
pub const RECOVERY_PASSES_MAX: usize = 16;

/// Intervals for which a residue may stay before the partition is asked about it: what an interval or two of ordinary churn
/// settle needs no help.
pub const RESIDUE_INTERVALS_MAX: u32 = 3;

/// Listed connections of each family that a partition is asked about at the end of one interval, at most: some milliseconds of its time,
/// and with their answers 60 MB of memory for all partitions.
pub const INQUIRY_MAX: usize = 1 << 15;

/// As many for each second of the interval, but no fewer than in ten: six million of a family are then asked about within an epoch of the
/// default idle timeout. (Beyond [`INQUIRY_MAX`], with intervals of more than 40 s, it takes longer.)
pub const INQUIRY_A_SECOND: usize = 820;

/// Open connections that a partition announces at the end of one interval.
pub const ANNOUNCEMENTS_MAX: usize = 1 << 15;

const _: () = assert!(DELTA_SPAN_MAX_TICKS + 2 * SYN_TIMEOUT_MAX_TICKS < 1 << TICK_BITS);

// Connections that vanish.

/// `--idle-timeout` unless something else is asked for, when live: TCP's keepalives come every two hours, so a connection that
/// has them is seen at least once after it came under watch.
pub const IDLE_TIMEOUT_LIVE_S: u64 = 4 * 3_600;

/// `--max-age` unless something else is asked for, when live: what is listed for longer is more likely an error than a
/// connection.
pub const AGE_MAX_LIVE_S: u64 = 5 * 86_400;

/// The shortest `--idle-timeout` and `--max-age`, in seconds: connections are asked about 16 times in one.
pub const EVICTION_TIMEOUT_MIN_S: u64 = 10;

/// The longest, in days, as for `--every`.
pub const EVICTION_TIMEOUT_MAX_DAYS: u64 = 366;

/// The epochs in an idle timeout: in each, every listed connection is asked about once.
pub const IDLE_EPOCHS: u64 = 16;

/// The epochs of silence after which a connection comes under watch: a quarter of the timeout.
pub const SUSPECT_EPOCHS: u64 = IDLE_EPOCHS / 4;

const _: () = assert!(EVICTION_TIMEOUT_MIN_S * 1_000_000_000 / TICK_NS as u64 >= IDLE_EPOCHS);

// Sources of connection attempts.

/// The sources that `--sources` lists exactly in an interval, and half as many of IPv6, unless something else is asked for: more
/// than clients, scanners and their like make behind one router. With eight shards and all other defaults it is what fits the
/// memory.
pub const SOURCES_DEFAULT: u64 = 30_000;

/// The fewest that can be asked for: fewer would save nothing.
pub const SOURCES_MIN: u64 = 1_000;

/// The most: gigabytes of counters.
pub const SOURCES_MAX: u64 = 10_000_000;

/// How seldom counters fail to list as many sources as they are made for.
pub const SOURCE_FAILURE: f64 = 1e-4;

/// Sources of late are remembered for as many as are listed exactly, divided by this: those that stand out are few.
pub const RECENT_SOURCES_DIVISOR: u64 = 4;

/// Sources of late in a bucket: in one that random addresses fill, who comes every eighth time is noticed.
pub const RECENT_SOURCE_WAYS: usize = 8;

/// Sources that a bucket of recent ones turns away, or takes in for others, before those in it lose a credit: who comes oftener than
/// once in so many stays.
pub const RECENT_SOURCE_MISSES: u8 = 64;

/// The longest line of a file of sources that is read back, in bytes: ours have less than 300.
pub const SOURCE_LINE_SIZE_MAX: u64 = 4 << 10;

/// The most sources that a table for people shows: more are for a program to read.
pub const SOURCES_TOP_MAX: u64 = 1 << 20;

const _: () = assert!(SOURCES_MIN <= SOURCES_DEFAULT && SOURCES_DEFAULT <= SOURCES_MAX);

// Files and streams of lists.

/// The level at which lists are compressed: 6.5 to 1 at 670 MB a second. Level 3 takes 1.6 times as long for 1 % less, and
/// level 9 nine times as long for 9 %: what is left are addresses and hashes.
pub const COMPRESSION_LEVEL: i32 = 1;

/// What compressing at [`COMPRESSION_LEVEL`] takes, in bytes: the window of 512 KiB, the tables over it, and buffers.
pub const COMPRESSION_SIZE: u64 = 3 << 20;

/// With changes, one list in so many is in full: once an hour at a list every ten seconds, which costs little beside the
/// changes, and makes an hour's changes the most that a reader has to go through.
pub const CHANGES_FULL_LISTS_DEFAULT: u64 = 360;

/// The most lists from one in full to the next: a day of them at ten seconds. They are kept and removed together.
pub const CHANGES_FULL_LISTS_MAX: u64 = 8_640;

/// The oldest list files that are remembered, to be removed when they are due: about two megabytes. More are looked up
/// in the directory when these are gone.
pub const KEPT_FILES_MAX: usize = 1 << 15;

/// Lists after which a directory is looked through again: somebody else may have removed files, and then too much would be.
pub const KEPT_FILES_CHECK_LISTS: u64 = 360;

/// With each list or segment that is written, one in so many of the older ones may be removed for its age. The ends of a day's lists say
/// how old they are, and a clock that leaps ahead makes them all old at once: while it is wrong for a few lists, most stay. A limit
/// that was lowered is kept from the start, when all that is too old goes.
pub const KEPT_AGED_SHARE: usize = 32;

/// But at least so many may: more than comes in, so that what has to go does.
pub const KEPT_AGED_MIN: usize = 2;

const _: () = assert!(CHANGES_FULL_LISTS_DEFAULT <= CHANGES_FULL_LISTS_MAX);

// Snapshot files.

/// The most bytes of a snapshot file, before compression: tables for a churn of ten million. Whoever reads a file holds no more
/// than about twice this of it, whatever it claims.
pub const SNAPSHOT_SIZE_MAX: u64 = 1 << 30;

/// What a half-open connection takes in what is held of a file, in bytes: more than twice what it takes in the file, so it is this
/// that has to fit beside the tables. That of fifty routers under a flood does.
pub const SNAPSHOT_HALF_OPEN_SIZE: u64 = 72;

/// The largest window that a snapshot's compression may ask for, as a power of two: 8 MiB, sixteen times what is written.
pub const SNAPSHOT_WINDOW_LOG_MAX: u32 = 23;

/// The longest name of a router, in bytes: what a host name may have.
pub const ROUTER_NAME_SIZE_MAX: usize = 64;

/// The routers whose snapshots can be merged into one: more than a site has.
pub const SNAPSHOT_SOURCES_MAX: usize = 1_024;

/// Cells that are read or written at once: some tens of kilobytes, which stay in the cache.
pub const SNAPSHOT_CELLS_AT_ONCE: usize = 1 << 10;

/// Every way to fold a table that is made for snapshots divides a multiple of this: into 2 to 6, 10, 12, 15, 20, 30 and 60.
pub const FOLD_BASE: u32 = 60;

// A state that outlives the process.

/// The version of the files that hold a state: another one is refused, since what is in them is this version's own.
pub const STATE_VERSION: u32 = 4;

/// Generations of a state that are kept: the newest, and one to fall back to.
pub const STATE_GENERATION_COUNT: usize = 2;

/// The highest count that is believed of a saved state: adding to it overflows in no run, and at a billion packets a second it
/// is reached after years.
pub const STATE_COUNT_MAX: u64 = 1 << 56;

/// The most time bases' offsets differ from 1970, in ns: leaps add up, and no run comes near.
pub const STATE_OFFSET_MAX_NS: i128 = 1 << 96;

/// `--state-every` unless something else is asked for: what a replay has to do again after a crash, and few enough writes for
/// a flash disk.
pub const STATE_EVERY_DEFAULT: Duration = Duration::from_secs(60);

/// What one listed connection takes in a saved state at most, in bytes: the key and the start of an IPv6 one.
pub const STATE_ENTRY_SIZE: u64 = 48;

/// The first bytes of an input by which a replay knows it again, beside its size.
pub const STATE_INPUT_HEAD_SIZE: u64 = 64 << 10;

const _: () = assert!(STATE_GENERATION_COUNT >= 2, "the newest may be damaged");
// The agent.

/// The longest line of a list, in bytes: an IPv6 connection with two VLAN tags takes half of it.
pub const LIST_LINE_SIZE_MAX: usize = 1 << 10;

/// How often the agent looks through the directory of snapshots, whether the system told of a change or not: soon enough for
/// intervals of seconds.
pub const AGENT_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the agent waits for a change at most before it sees whether it is to stop.
pub const AGENT_WAIT_MAX: Duration = Duration::from_millis(100);

/// The runs before the present one that the agent remembers, so that a late snapshot of one is not taken for a new run: restarts
/// of as many days, or of an hour that went very wrong.
pub const AGENT_RUNS_MAX: usize = 64;

/// The most bytes of the agent's note of where it is: all runs that it can name, with names of routers of full length, take less.
pub const AGENT_POSITION_SIZE_MAX: u64 = 64 << 10;

const _: () = assert!(AGENT_RUNS_MAX as u64 * (6 * ROUTER_NAME_SIZE_MAX as u64 + 128) < AGENT_POSITION_SIZE_MAX);

// Sums of snapshots.

/// The differences that a digest is asked to reconcile at most: for more of them a digest is no smaller than the snapshot.
pub const DIGEST_DIFFERENCES_MAX: u64 = CONNECTIONS_MAX;

/// The part of a digest's differences for which either family has room, one in so many, however little of it is open: the other side
/// may have more.
pub const DIGEST_FAMILY_SHARE: u64 = 16;

const _: () = assert!(1 << AGGREGATE_LOST_BITS_MAX >= SNAPSHOT_SOURCES_MAX * SNAPSHOT_SOURCES_MAX);
const _: () = assert!(AGGREGATE_TRIES_MIN / AGGREGATE_TRIES_SHARE >= 1 << AGGREGATE_LOST_BITS_MAX);

// The run as a whole.

/// A signal to end that comes so soon after the first is the same one: `timeout` tells its child and then the group that it is in, and
/// a service manager may do as much. Nobody who has seen that a run does not end is so quick.
pub const SAME_SIGNAL_MAX: Duration = Duration::from_millis(500);

/// How long a capture thread that has nothing to read sleeps at most, in milliseconds: so long it may take to stop.
pub const LIVE_WAIT_MAX_MS: u64 = 100;

/// Intervals that have ended and whose list is not written yet, at most: beyond this the next end is passed over, and its
/// interval becomes part of the one after it.
pub const PENDING_INTERVALS_MAX: usize = 4;

/// How much the wall clock may differ from what it was thought to be before a live capture takes the difference for a
/// step, in nanoseconds: a tick, since times are told no finer.
pub const WALL_STEP_MIN_NS: i64 = TICK_NS;

/// How long a live capture waits for packets that came before the end of an interval and have not been shown yet, in
/// nanoseconds: as long as shards do.
pub const END_PATIENCE_NS: i64 = MERGE_PATIENCE_NS;

/// The memory that may be taken unless something else is allowed: what a router can spare.
pub const MEMORY_SIZE_DEFAULT: u64 = 256 << 20;

/// Packets between two looks at whether to stop: even a slow pipe gives so many in a moment.
pub const STOP_INTERVAL_PACKETS: u64 = 1 << 6;

/// Packets between two tellings of how far the input is: some milliseconds.
pub const OBSERVE_INTERVAL_PACKETS: u64 = 1 << 14;

const _: () = assert!(OBSERVE_INTERVAL_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

// Metrics and their server.

/// The longest time that latencies tell apart, in ns: an hour. What takes longer is no latency any more.
pub const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Quantiles cover between one and two of these: long enough for some scrapes, short enough that today's trouble shows.
pub const LATENCY_WINDOW: Duration = Duration::from_secs(300);

/// How late a list may come without being called late, in percent of its interval: decoding and writing take time.
pub const HEALTH_GRACE_PERCENT: u32 = 50;

/// It may come this late in any case: a second of load must not call anybody at night.
pub const HEALTH_GRACE_MIN: Duration = Duration::from_secs(5);

/// The longest request to the metrics server, in bytes: a browser with its cookies sends less.
pub const REQUEST_SIZE_MAX: usize = 8 << 10;

/// The most headers of a request to the metrics server.
pub const REQUEST_HEADER_COUNT_MAX: usize = 64;

/// Clients that the metrics server attends to at once; another one pushes out the oldest. A scrape lasts some
/// milliseconds, so slow clients can not keep honest ones out, and hold a megabyte or two at most.
pub const SERVE_CONNECTION_COUNT_MAX: usize = 32;

/// How long a client of the metrics server may take for everything: as long as Prometheus waits by default.
pub const SERVE_TIME_MAX: Duration = Duration::from_secs(10);

/// What is read of a client after its request, in bytes, only so that it gets to read the answer: closing on unread bytes
/// would reset the connection.
pub const SERVE_DISCARD_SIZE_MAX: usize = 64 << 10;

/// How long the metrics server waits when the system lets it take no more clients.
pub const SERVE_RETRY: Duration = Duration::from_millis(100);

// Generated traffic.

/// The end of generated time, in microseconds since 1970: seconds in a pcap file have 32 bits (the year 2106).
pub const GENERATED_TIME_MAX_US: u64 = (u32::MAX as u64) * 1_000_000;

/// The longest time from one packet of a connection to the next that can be asked for, in microseconds: a day. Times up
/// to it add up without overflow, and longer ones are a mistake.
pub const GENERATED_WAIT_MAX_US: u64 = 86_400_000_000;

/// The most packets of a flood, and data packets of a connection, that can be asked for: so many at a packet a
/// microsecond last for twelve days, and times computed from their number stay within 64 bits.
pub const GENERATED_PACKETS_MAX: u64 = 1 << 40;

/// The most bytes of a generated frame that can be captured: more than any of them has.
pub const GENERATED_CAPTURED_SIZE_MAX: usize = 65_535;

/// Closed connections whose ports are remembered for reuse: some seconds of a busy capture.
pub const GENERATED_CLOSED_MAX: usize = 1_024;

const _: () = assert!(GENERATED_PACKETS_MAX.checked_mul(1_000_000).is_some());
const _: () = assert!(GENERATED_CAPTURED_SIZE_MAX <= PACKET_SIZE_MAX);

// Lookup tables.

/// The most cells that one key is summed into: what the best irregular tables use, and some more.
pub const TABLE_DEGREE_MAX: usize = 24;

/// The most segments of a spatially coupled table: ten times as many as the largest measured tables gain from.
pub const TABLE_SEGMENTS_MAX: u32 = 4_096;

/// The most cells of a table: places are 32-bit numbers, and so are twice as many half segments.
pub const TABLE_CELLS_MAX: u32 = 1 << 31;

/// Bits that dividing a key sum by an even count may have lost: each doubles the keys that are tried.
pub const TABLE_LOST_BITS_MAX: u32 = 16;

/// Divisions that are tried for each cell of a table, on average: honest keys need one or two.
pub const TABLE_DIVISIONS_PER_CELL: u64 = 64;

/// Divisions that are tried in any table: some counts with all the factors of two there may be.
pub const TABLE_DIVISIONS_MIN: u64 = 1 << 19;

/// The largest value that a table checks, in bytes: checks are made on the stack.
pub const TABLE_VALUE_SIZE_MAX: usize = 256;

/// How far getting a key follows its neighbours to cells of theirs: after three steps little is gained.
pub const TABLE_GET_DEPTH_MAX: usize = 3;

/// Cells that getting one key visits at most, so that no table makes it long.
pub const TABLE_GET_VISITS_MAX: usize = 512;

/// Passes over known pairs, or over listed ones, to tell what is tangled: each brings the next nearer, and few are needed.
pub const TABLE_PASSES_MAX: usize = 64;

/// Strata of a size estimator: enough for differences of billions.
pub const ESTIMATOR_STRATUM_COUNT: usize = 32;

/// Cells of one stratum: some fifty differences list, so that the estimate is off by 8 % on average.
pub const ESTIMATOR_CELL_COUNT: u32 = 80;

/// The largest count of a counter's cell that is shared out between two keys: it takes a try for every share, and small
/// multiplicities are what that is for.
pub const COUNTER_SPLIT_COUNT_MAX: i64 = 1 << 12;

/// Shares that are tried for each cell of a counter, on average: at the threshold of one kept key a cell of four keys is
/// tried some twenty times with two hundred shares.
pub const COUNTER_SPLITS_PER_CELL: u64 = 1 << 12;

/// Shares that are tried in any counter: the smallest have no average.
pub const COUNTER_SPLITS_MIN: u64 = 1 << 16;

/// Keys that splits take out of a counter, a cell: three times as many as any counter lists.
pub const COUNTER_KEYS_PER_CELL: usize = 4;

const _: () = assert!(TABLE_DIVISIONS_MIN > 1 << TABLE_LOST_BITS_MAX);

// B-fields.

/// The most ones of a code word: with these every 32-bit value has a word of 64 bits.
pub const BFIELD_KAPPA_MAX: u32 = 8;

/// The most hash functions of a field: the rarest false positives of a code with a single one take 60.
pub const BFIELD_HASH_COUNT_MAX: u32 = 64;

/// The rarest false positives that a field is planned for: nobody looks up more keys than that.
pub const BFIELD_FALSE_POSITIVE_MIN: f64 = 1e-18;

/// The largest share of keys that an array hands on to the next: beyond it the next arrays cost more than better ones would.
pub const BFIELD_INDETERMINATE_MAX: f64 = 0.25;

/// Keys that the last array may leave without an answer, on average: a field in a thousand leaves one.
pub const BFIELD_KEYS_LEFT_MAX: f64 = 1e-3;

/// The most arrays of a field: each hands on a quarter at most, so these are enough for 2^40 keys.
pub const BFIELD_ARRAY_COUNT_MAX: usize = 26;

/// The smallest array, in keys: in smaller ones chance is far from its mean, and they save nothing.
pub const BFIELD_ARRAY_KEYS_MIN: u64 = 64;

/// Standard deviations of the number of keys handed on that each later array has room for beside the mean: more than
/// chance brings.
pub const BFIELD_DEVIATIONS: f64 = 6.0;

/// The largest field, in bits: a tebibyte.
pub const BFIELD_BITS_MAX: u64 = 1 << 43;

// Sizes in bytes add up without overflow, whatever a file says.
const _: () = assert!((BFIELD_BITS_MAX / 8).checked_mul(2 * BFIELD_ARRAY_COUNT_MAX as u64).is_some());

/// Bytes of a field's file under one check sum: a page, which the system reads at once.
pub const BFIELD_BLOCK_SIZE: usize = 4_096;

/// Records of an insertion log that are read at once.
pub const BFIELD_LOG_READ_COUNT: usize = 1_024;

/// A field that grows is settled when it has grown by one in so many: its log is then read some times over in all.
pub const BFIELD_SETTLE_SHARE: u64 = 4;

/// It is not settled for fewer new pairs than this.
pub const BFIELD_SETTLE_PAIRS_MIN: u64 = 1 << 14;

// Planning.

/// Items that are placed to try a planned table at most: a second or two.
pub const PLAN_SIMULATED_ITEMS_MAX: u64 = 10_000_000;

/// Trials of a planned table at most: more tell little more.
pub const PLAN_TRIALS_MAX: u64 = 100_000;

/// The rarest failure of a table that can be planned for: a table an interval of a second fails once in twelve days.
pub const PLAN_FAILURE_MIN: f64 = 1e-6;

/// The commonest: above it a table hardly ever lists.
pub const PLAN_FAILURE_MAX: f64 = 0.1;
