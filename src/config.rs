//! Every limit, with its name and its reason; relations between limits are asserted at compile time.

use std::time::Duration;

// Capture: what a file may ask for.

/// Bytes read from the input at once: large enough that the system call costs nothing beside the copy, small enough to
/// stay in the cache with everything else while the packets are parsed.
pub const CAPTURE_READ_SIZE: usize = 256 << 10;

/// The longest packet a capture file may hold, in bytes: what libpcap and Wireshark accept too. A longer one means that
/// the file is damaged.
pub const PACKET_SIZE_MAX: usize = 256 << 10;

/// The longest pcapng block that is held whole, in bytes: the longest packet and two options of the longest kind. Only
/// blocks of packets and of interface descriptions are held; others may have any length, because they are skipped as
/// they come.
pub const BLOCK_SIZE_MAX: usize = 400 << 10;

/// The longest option of a pcapng block, in bytes: option lengths are 16-bit numbers.
const BLOCK_OPTION_SIZE_MAX: usize = (1 << 16) + 4;
const _: () = assert!(BLOCK_SIZE_MAX >= PACKET_SIZE_MAX + 2 * BLOCK_OPTION_SIZE_MAX);

/// The size of a page of memory on most machines, in bytes. Reads begin at the start of a page: the kernel copies page
/// by page, and some processors copy at a third of the speed to a place that is a few bytes further into its page than
/// the source.
pub const READ_PAGE_SIZE: usize = 4 << 10;

/// The size of the capture buffer, in bytes: the longest block fits, wherever in a page the block and the buffer begin.
pub const CAPTURE_BUFFER_SIZE: usize = BLOCK_SIZE_MAX + 2 * READ_PAGE_SIZE;
// A read behind the beginning of an IP packet, of 64 KiB at most, has its full size. Behind a longer block it is cut to
// the room left.
const _: () = assert!(CAPTURE_BUFFER_SIZE >= 2 * READ_PAGE_SIZE + (64 << 10) + CAPTURE_READ_SIZE);

/// Bytes of compressed input held at once: little, since a decoder that meets damage loses what it made of them.
pub const COMPRESSED_READ_SIZE: usize = 64 << 10;

/// The largest window that a zstd file may ask for, as a power of two: 128 MiB, which is what `zstd -d` accepts. The
/// window is allocated at the file's word, so this is the most that a hostile file gets.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Interfaces that one section of a pcapng file may declare: as many as the 16-bit number in the oldest kind of packet
/// block can name.
pub const CAPTURE_INTERFACE_COUNT_MAX: usize = 1 << 16;

/// Unreadable link types of one capture whose packets are counted separately; any more are counted together.
pub const SKIPPED_LINK_TYPE_COUNT_MAX: usize = 16;

// Live capture.

/// Bytes of a packet that `--capture headers` and `--capture flags` take: 22 of Ethernet with two tags, 40 of IPv6, 60
/// of the longest TCP header, and 70 for extension headers, an MPLS stack or another Ethernet header between them.
pub const LIVE_SNAP_SIZE: u32 = 192;

/// Bytes of a packet that `--tunnels` takes: the headers above twice, with those of a tunnel or two between them.
pub const LIVE_TUNNEL_SNAP_SIZE: u32 = 512;

const _: () = assert!(LIVE_SNAP_SIZE >= 22 + 40 + 60 && LIVE_TUNNEL_SNAP_SIZE >= 2 * LIVE_SNAP_SIZE);

/// VLAN tags in a frame that the in-kernel filter follows, not counting the one that the kernel takes out of the frame.
/// Frames with more tags pass, and the parser decides.
pub const LIVE_FILTER_TAG_COUNT: u32 = 2;

/// MPLS labels that the in-kernel filter follows; frames with more of them pass.
pub const LIVE_FILTER_LABEL_COUNT: u32 = 3;

/// The most instructions of a `--bpf` program: what the kernel takes (BPF_MAXINSNS).
pub const BPF_INSTRUCTION_COUNT_MAX: usize = 4096;

/// The longest `--bpf` file, in bytes: the most instructions, each with the longest numbers.
pub const BPF_FILE_SIZE_MAX: u64 = 32 * (BPF_INSTRUCTION_COUNT_MAX as u64 + 1);

/// The size of a block of the ring, in bytes. The kernel hands over whole blocks, and a packet lies in one of them: it
/// holds twice the longest IP packet. Smaller ones would make a ring that nobody reads last longer, since slow traffic
/// fills no block either.
pub const RING_BLOCK_SIZE: u32 = 128 << 10;

const _: () = assert!(RING_BLOCK_SIZE.is_power_of_two() && RING_BLOCK_SIZE as usize <= PACKET_SIZE_MAX);

/// The default size of the ring of each capture thread, in bytes. At a million packets a second, of which 250 bytes are
/// kept each, it holds a sixteenth of a second. At any lower rate it holds more than a second: 128 blocks, of which one
/// is handed over every 10 ms.
pub const RING_SIZE_DEFAULT: u64 = 16 << 20;

/// The smallest ring, in bytes: one block that is read, one that is filled, and two to spare.
pub const RING_SIZE_MIN: u64 = 4 * RING_BLOCK_SIZE as u64;

/// The largest ring, in bytes: its memory cannot be swapped out, and a reader that is a second late never catches up.
pub const RING_SIZE_MAX: u64 = 1 << 30;

const _: () = assert!(RING_SIZE_MIN <= RING_SIZE_DEFAULT && RING_SIZE_DEFAULT <= RING_SIZE_MAX);
const _: () = assert!(RING_SIZE_MAX.is_multiple_of(RING_BLOCK_SIZE as u64));

/// How long the kernel waits before it hands over a block that is not full, in milliseconds: packets are seen within
/// that time.
pub const RING_RETIRE_MS: u32 = 10;

/// The most capture threads on one interface: the kernel shares packets out by a hash, and no router has more cores for
/// it.
pub const FANOUT_COUNT_MAX: usize = 64;

/// The first pause before an interface that is away is looked for again, in milliseconds: a flapping one is back that
/// soon.
pub const INTERFACE_RETRY_MIN_MS: u64 = 50;

/// The longest pause before it is looked for again, in milliseconds: pauses double up to it.
pub const INTERFACE_RETRY_MAX_MS: u64 = 2_000;

const _: () = assert!(INTERFACE_RETRY_MIN_MS <= INTERFACE_RETRY_MAX_MS);

// Parse.

/// The most steps from layer to layer that the parser follows in one frame. A step reads a header, a tag, a label or an
/// extension header, or decides by one of their fields what comes next.
///
/// Plain TCP takes 5 steps, a mirrored frame that holds a VXLAN tunnel 16, and a tagged pseudowire around the same
/// about 24. Only frames made to waste time reach twice that.
pub const LAYER_COUNT_MAX: usize = 48;

// Time.

/// The length of a tick, in nanoseconds: 100 ms. Start times and timeouts are kept no finer.
pub const TICK_NS: i64 = 100_000_000;

/// Bits of a start's tick that the filter keeps: they wrap after 29 hours, and code that reads them knows the time to
/// within that.
pub const TICK_BITS: u32 = 20;

/// The age, relative to the newest packet, from which a packet starts a new time base, in nanoseconds: no network
/// delays packets for a minute, so the clock was set, or another capture begins.
pub const CLOCK_STEP_BACK_MAX_NS: i64 = 60_000_000_000;

/// The longest step forward of a capture's clock, in nanoseconds. A packet that is newer by more starts a new time
/// base, and counts as this much later: longer than every timeout, and short enough for the 32 bits of a tick that
/// half-open records keep.
pub const CLOCK_LEAP_MAX_NS: i64 = 30 * 86_400_000_000_000;

/// Time bases that are remembered. Each is a step of the capture's clock; a clock that steps more often than this
/// within the life of a connection does not tell the time anyway.
pub const TIME_BASES_MAX: usize = 64;

// Signals and queues.

/// The sampling interval while a handshake may have been lost: one in this many of the other TCP packets is looked at.
/// That costs a tenth of looking at all of them, and finds an ordinary connection within its next few packets.
pub const SAMPLE_INTERVAL_PACKETS: u32 = 16;

/// Signals in a block: enough that the queue costs little a signal, few enough that a block stays in the first-level
/// cache.
pub const BLOCK_SIGNAL_COUNT: usize = 64;

/// The most blocks that wait in a queue: what a shard does in some milliseconds, the time it may be away. They take
/// more than a core's own cache holds (a megabyte or two): a block that has moved from there to the shared cache is
/// read in half the time.
pub const QUEUE_BLOCKS_MAX: usize = 384;

/// Marks that find room in a queue beside the blocks: an end of an interval and a new time base for each of the few
/// intervals that may be under way ([`PENDING_INTERVALS_MAX`]).
pub const QUEUE_MARKS_MAX: usize = 16;

/// How long a live capture waits for room in a full queue, in microseconds, before it drops a block of signals: as long
/// as the shard may wait for another capture thread's signals and then for its mark, and some more for either to be
/// scheduled. The kernel's ring holds more than comes in meanwhile, so what is lost sooner is lost for nothing.
pub const QUEUE_WAIT_MAX_US: u64 = 40_000;

/// How soon a live capture that waits for room looks again, in microseconds.
pub const QUEUE_LOOK_US: u64 = 2_000;

/// How long a shard waits for older signals of a silent capture thread, in nanoseconds: longer than the kernel holds
/// packets back in a block of its ring that is not full.
pub const MERGE_PATIENCE_NS: i64 = 15_000_000;

/// Waiting blocks at which a sleeping shard is woken. A wake-up costs as much as handling two blocks, and a shard close
/// behind the capture thread reads from that thread's cache. The rest of the queue holds what comes in until the shard
/// runs.
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

const _: () = assert!(QUEUE_WAIT_MAX_US * 1_000 > 2 * MERGE_PATIENCE_NS as u64);
const _: () = assert!(QUEUE_WAKE_BLOCKS < QUEUE_BLOCKS_MAX / 2);
const _: () = assert!(QUEUE_MARKS_MAX >= 2 * (PENDING_INTERVALS_MAX + 1));

// Connections.

/// Bits of a connection's hash that choose its partition.
pub const PARTITION_BITS: u32 = 3;

/// Partitions into which the state is split by the key's hash, whatever the number of shards: lists and counts are then
/// the same with one shard and with eight.
pub const PARTITION_COUNT: usize = 1 << PARTITION_BITS;

/// Standard deviations that each partition has room for beside its even share of items: partitions do not share evenly,
/// and this is more than chance brings.
pub const PARTITION_DEVIATIONS: u64 = 6;

/// Items that each partition has room for besides, so that a share of almost none does too.
pub const PARTITION_ITEMS_MIN: u64 = 16;

/// The most shards: there are no more partitions to work on.
pub const SHARDS_MAX: usize = PARTITION_COUNT;

/// Bits of a connection's hash that tell it from the others in its buckets of the filter: a connection that is not
/// there is taken for another about once in 10^8 look-ups.
pub const FINGERPRINT_BITS: u32 = 30;

/// How full the filter may become with all the connections that can be established, in percent. At 97 one in thirty
/// thousand of them finds no place, and one in fifty while it is half-open. At 93 all find one, half-open or not.
pub const FILTER_ESTABLISHED_PERCENT: u64 = 93;

/// How full the filter may become with everything it is made for, in percent, including what has just closed: closed
/// connections make room where there is no place, and then linger for a shorter time.
pub const FILTER_LOAD_PERCENT: u64 = 98;

/// The part of the half-open connections for which the filter has places of their own, as one in this many. Where more
/// connections close in an interval, it has places for those instead. Only a flood needs more, and it takes the places
/// of what has closed and its own.
pub const HALF_OPEN_PLACES_DIVISOR: u64 = 8;

const _: () = assert!(FILTER_ESTABLISHED_PERCENT <= FILTER_LOAD_PERCENT && FILTER_LOAD_PERCENT < 100);

/// The part of the filter's places that connections seen from one side only may take, as one in this many: a flood can
/// fake them, and must not fill it.
pub const ONE_WAY_PLACES_DIVISOR: u64 = 8;

/// How long a closed connection lingers, in ticks of 100 ms: late packets and retransmissions come within seconds.
pub const LINGER_TICKS: u32 = 100;

/// How long a half-open connection is kept by default, in seconds: longer than a client waits.
pub const SYN_TIMEOUT_DEFAULT_S: u64 = 60;

/// How long each of several capture threads remembers the SYNs it read, in nanoseconds: a long round trip, and the
/// delay in the rings. The shorter this is, the more SYNs a second fit before any is forgotten too soon.
pub const SEEN_SYN_TIMEOUT_NS: i64 = 4_000_000_000;

/// The longest `--syn-timeout`, in ticks of 100 ms: ten minutes, far beyond the last retransmission of any SYN.
pub const SYN_TIMEOUT_MAX_TICKS: u64 = 6_000;

/// The most connections that are tracked by default.
pub const CONNECTIONS_DEFAULT: u64 = 500_000;

/// The fewest connections that can be asked for: fewer would save nothing.
pub const CONNECTIONS_MIN: u64 = 1_000;

/// The most connections, and the most openings and closings an interval, that can be asked for: a subtable's cells are
/// chosen by 24 bits of a hash, and a partition's share of more would crowd together.
pub const CONNECTIONS_MAX: u64 = 100_000_000;

/// The fewest half-open connections that there is room for: a busy server's legitimate ones need as much. By default
/// there is room for half as many as there may be connections, within this and [`HALF_OPEN_MAX`].
pub const HALF_OPEN_MIN: u64 = 1 << 14;

/// The most half-open connections that are kept: at a million attempts a second the oldest is then a quarter of a
/// second old when it has to go, longer than most round trips.
pub const HALF_OPEN_MAX: u64 = 1 << 18;

/// The ratio of half-open connections that are kept by default to candidates. Candidates are connections of which one
/// side was seen and the start was not; the busy ones are found within a second of the start, and then there are few.
pub const CANDIDATES_DIVISOR: u64 = 2;

/// How long a candidate waits for a packet of its other side, in ticks of 100 ms: ten minutes, in which a sample of one
/// packet in 16 meets both sides of a connection that sends a packet every ten seconds.
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

/// The default of `--pickup` in a live capture: the same sample that makes good lost handshakes.
pub const PICKUP_LIVE: u32 = SAMPLE_INTERVAL_PACKETS;

/// The largest `--pickup`, and so the rarest sample: with fewer packets hardly any connection shows both its sides in
/// time.
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

/// The most blocks of records that wait for the archive: half a second at 100,000 closings a second, longer than a disk
/// usually stalls.
pub const RECORD_QUEUE_BLOCKS_MAX: usize = 1_024;

/// How long a record waits for its block to fill, in ticks: a second, so that a crash loses no more.
pub const RECORD_DELAY_MAX_TICKS: u64 = 10;

/// Packets of a replay between two cuts of the archive: at most this many records are sorted together, some megabytes.
pub const RECORD_CUT_PACKETS: u64 = 1 << 16;

/// The most entries in a block of an archive: enough for compression to work well, and no more than damage may cost.
pub const ARCHIVE_BLOCK_ENTRIES_MAX: usize = 8_192;

/// The level at which archives are compressed: the default of zstd.
pub const ARCHIVE_COMPRESSION_LEVEL: i32 = 3;

/// The default size at which a segment is sealed, in bytes: some 80,000 connections, which are read in some
/// milliseconds.
pub const SEGMENT_SIZE_DEFAULT: u64 = 1 << 20;

/// The smallest segment that can be asked for, in bytes: smaller ones are mostly filters.
pub const SEGMENT_SIZE_MIN: u64 = 1 << 14;

/// The largest segment that can be asked for, in bytes: until it is sealed its entries stand in memory, where they take
/// six times as much.
pub const SEGMENT_SIZE_MAX: u64 = 64 << 20;

/// The fewest bytes that an entry is reckoned to take in a segment: this bounds the entries of one segment.
pub const SEGMENT_ENTRY_SIZE_MIN: u64 = 8;

/// The default age at which a segment is sealed.
pub const SEGMENT_AGE_DEFAULT: Duration = Duration::from_secs(3_600);

/// Segments that share one B-field. Segments that have none yet are asked one by one, and each is wrong once in 2,000
/// times.
pub const ARCHIVE_GROUP_SEGMENTS: u32 = 32;

/// How often a B-field names a segment for a connection that is not there: rarely, even where thousands of fields are
/// asked.
pub const ARCHIVE_INDEX_FALSE_POSITIVE_RATE: f64 = 1.0 / 4_096.0;

/// The most that a B-field takes for a connection, in bytes, at [`ARCHIVE_INDEX_FALSE_POSITIVE_RATE`] and for
/// [`ARCHIVE_GROUP_SEGMENTS`].
pub const ARCHIVE_INDEX_ENTRY_SIZE: u64 = 5;

/// How long live records wait before they are synced to the disk: the most that a crash may lose.
pub const ARCHIVE_FLUSH_DELAY: Duration = Duration::from_secs(1);

/// How often the archive of a live capture is told what is open: the greatest age of that knowledge after a crash.
pub const ARCHIVE_OPEN_INTERVAL: Duration = Duration::from_secs(60);

/// Parts of a list of open connections, of [`ARCHIVE_BLOCK_ENTRIES_MAX`] each, that wait for the archive.
pub const ARCHIVE_OPEN_CHUNKS_MAX: usize = 2;

/// The most connections older than half a wrap of the tick whose starts are remembered: some megabytes.
pub const ARCHIVE_AGES_MAX: usize = 1 << 16;

const _: () = assert!(SEGMENT_SIZE_MIN <= SEGMENT_SIZE_DEFAULT && SEGMENT_SIZE_DEFAULT <= SEGMENT_SIZE_MAX);
const _: () = assert!(RECORD_CUT_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

// Deltas and the list.

/// The openings and closings in an interval that tables are made for by default.
pub const CHURN_DEFAULT: u64 = 100_000;

/// The least churn that tables are made for: smaller tables fail by chance.
pub const CHURN_MIN: u64 = 1_000;

/// The parts of an interval's churn, for one of which tables are made: a full table is handed over before the interval
/// ends. That costs a scan of its cells, and saves memory, which a router can spare least.
pub const DELTA_PARTS: u64 = 4;

/// The fewest changes that tables are made for, unless a partition's whole churn is less. Two connections with the same
/// four cells are listed only once one of them has closed, and such pairs grow with the square of how small a table is.
pub const DELTA_ITEMS_MIN: u64 = 3_300;

/// How full a delta may become before it is handed over, in percent of what it plainly lists: it then lists nearly
/// always, and holds two connections with the same four cells once in a million times.
pub const DELTA_LOAD_PERCENT: u64 = 50;

/// How full the tables of snapshots are when as much has changed as they are made for, in percent of what they plainly
/// list.
pub const SNAPSHOT_LOAD_PERCENT: u64 = 90;

/// Empty deltas of each partition beside the one in use, where a shard waits for the list or deltas hold a whole
/// interval's churn.
pub const DELTA_SPARES_WHOLE: usize = 1;

/// Empty deltas of each partition beside the one in use, in a live capture without snapshots: these and the one that
/// goes on filling hold most of an interval's churn while a list is written.
pub const DELTA_SPARES_LIVE: usize = 3;

/// The longest `--every`, in days: for anything longer there is the list at the end.
pub const EVERY_MAX_DAYS: u64 = 366;

/// The longest time that one delta may span, in ticks: half of what the start time in a value can tell. The other half
/// is for connections that were half-open when the delta began.
pub const DELTA_SPAN_MAX_TICKS: u64 = 1 << (TICK_BITS - 1);

/// What one listed connection takes at most, in bytes: 48 for the key and the start, 6 in an index that has just grown,
/// and 4 in the part of the list that is being sorted. The 48 are those of IPv6 where starts are years apart. Elsewhere
/// they are 46 with VLAN tags in keys, and 42 without; for IPv4 it is 24, 22 or 18.
pub const LIST_ENTRY_SIZE: u64 = 48 + 6 + 4;

/// The most connections that are listed in one family of one partition: an index has 24 bits for each.
pub const LISTED_MAX: usize = 15_000_000;

/// Parts in which a list is sorted. Each part costs a scan of all connections, 2 ns a connection, and takes its share
/// of their memory.
pub const LIST_PARTS: usize = 16;

/// Connections in the smallest part of [`LIST_PARTS`]: saving less memory is not worth a scan.
pub const LIST_PART_COUNT_MIN: usize = 1 << 15;

/// Connections that are sampled to see where parts begin: no part is then a quarter longer than the others by chance.
pub const LIST_SAMPLE_COUNT: usize = 1 << 12;

/// Connections of the shortest last list that two threads write: some milliseconds of work, a hundred times the cost of
/// starting a thread.
pub const LIST_TWO_THREADS_MIN: u64 = 1 << 15;

/// Rows that one thread hands the other at once: some 50 microseconds of work, and lines that stay in the second-level
/// cache.
pub const LIST_CHUNK_ROWS: usize = 256;

/// The most chunks of [`LIST_CHUNK_ROWS`] that wait for the other thread: a megabyte, which keeps it busy for two of
/// the five milliseconds in which the next part of a list of a million is picked out and sorted.
pub const LIST_CHUNKS_AHEAD: usize = 40;

// Partitions do not share evenly.
const _: () = assert!(CONNECTIONS_MAX / PARTITION_COUNT as u64 * 9 / 8 <= LISTED_MAX as u64);

/// The largest count in a cell that is taken for one key that was added several times. Errors make twos and rarely
/// more, and every factor of two in a count multiplies the keys that have to be tried.
pub const AGGREGATE_COUNT_MAX: u32 = 3;

/// The most bits lost in dividing a key sum by an even count. Each lost bit doubles the keys that are tried; with this
/// many that takes some milliseconds. It is enough for an IPv4 key of any count that a sum of routers may have, and for
/// an IPv6 key that 31 routers saw.
pub const AGGREGATE_LOST_BITS_MAX: u32 = 20;

/// Keys that are tried for even counts for each cell of a table, on average: enough where each of a thousand routers
/// sees connections of its own.
pub const AGGREGATE_TRIES_PER_CELL: u64 = 1 << 12;

/// Keys that are tried for even counts in any table, however small: some seconds, enough for five hundred IPv6 keys
/// that 16 routers saw.
pub const AGGREGATE_TRIES_MIN: u64 = 1 << 28;

/// The part of the remaining tries that one division may take, as one in this many: divisions that take few tries are
/// made even where those that take many were made for nothing.
pub const AGGREGATE_TRIES_SHARE: u64 = 16;

/// The most openings and closings at odds with the list that are remembered in each partition and family: a hundred
/// times the filter errors expected in a billion packets.
pub const EXTRANEOUS_MAX: usize = 1_024;

/// The most passes over the list to recover one delta: differences that overlap take one pass each, and more than a few
/// never do.
pub const RECOVERY_PASSES_MAX: usize = 16;

/// Intervals for which a residue may stay before the partition is asked about it: a residue that ordinary churn settles
/// within an interval or two needs no help.
pub const RESIDUE_INTERVALS_MAX: u32 = 3;

/// The most listed connections of each family that a partition is asked about at the end of one interval: some
/// milliseconds of its time, and with the answers 60 MB of memory for all partitions.
pub const INQUIRY_MAX: usize = 1 << 15;

/// Listed connections of each family that a partition is asked about for each second of the interval, of which at least
/// ten count: six million of a family are then asked about within an epoch of the default idle timeout. (Intervals of
/// more than 40 s reach [`INQUIRY_MAX`], and it takes longer.)
pub const INQUIRY_A_SECOND: usize = 820;

/// The most open connections that a partition announces at the end of one interval.
pub const ANNOUNCEMENTS_MAX: usize = 1 << 15;

const _: () = assert!(DELTA_SPAN_MAX_TICKS + 2 * SYN_TIMEOUT_MAX_TICKS < 1 << TICK_BITS);

// Connections that vanish.

/// The default of `--idle-timeout` in a live capture, in seconds: TCP's keepalives come every two hours, so a
/// connection that sends them is seen at least once after it came under watch.
pub const IDLE_TIMEOUT_LIVE_S: u64 = 4 * 3_600;

/// The default of `--max-age` in a live capture, in seconds: what is listed for longer is more likely an error than a
/// connection.
pub const AGE_MAX_LIVE_S: u64 = 5 * 86_400;

/// The shortest `--idle-timeout` and `--max-age`, in seconds: connections are asked about 16 times in one.
pub const EVICTION_TIMEOUT_MIN_S: u64 = 10;

/// The longest `--idle-timeout` and `--max-age`, in days: as for `--every`.
pub const EVICTION_TIMEOUT_MAX_DAYS: u64 = 366;

/// Epochs in an idle timeout. In each of them every listed connection is asked about once.
pub const IDLE_EPOCHS: u64 = 16;

/// Epochs of silence after which a connection comes under watch: a quarter of the timeout.
pub const SUSPECT_EPOCHS: u64 = IDLE_EPOCHS / 4;

const _: () = assert!(EVICTION_TIMEOUT_MIN_S * 1_000_000_000 / TICK_NS as u64 >= IDLE_EPOCHS);

// Sources of connection attempts.

/// The sources that `--sources` lists exactly in an interval by default, and half as many of IPv6: more than the
/// clients and scanners behind one router. With eight shards and all other defaults it is what fits the memory.
pub const SOURCES_DEFAULT: u64 = 30_000;

/// The fewest sources that can be asked for: fewer would save nothing.
pub const SOURCES_MIN: u64 = 1_000;

/// The most sources that can be asked for: gigabytes of counters.
pub const SOURCES_MAX: u64 = 10_000_000;

/// The probability that counters fail to list as many sources as they are made for.
pub const SOURCE_FAILURE: f64 = 1e-4;

/// The ratio of sources that are listed exactly to recent sources that are remembered: those that stand out are few.
pub const RECENT_SOURCES_DIVISOR: u64 = 4;

/// Recent sources in a bucket: in one that random addresses fill, a source that comes every eighth time is noticed.
pub const RECENT_SOURCE_WAYS: usize = 8;

/// Sources that a bucket of recent ones turns away, or takes in for others, before those in it lose a credit: a source
/// that comes more often than once in this many stays.
pub const RECENT_SOURCE_MISSES: u8 = 64;

/// The longest line of a file of sources that is read back, in bytes: lines that flowpeel writes have fewer than 300.
pub const SOURCE_LINE_SIZE_MAX: u64 = 4 << 10;

/// The most sources that a table for people shows: more are for a program to read.
pub const SOURCES_TOP_MAX: u64 = 1 << 20;

const _: () = assert!(SOURCES_MIN <= SOURCES_DEFAULT && SOURCES_DEFAULT <= SOURCES_MAX);

// Files and streams of lists.

/// The level at which lists are compressed: 6.5 to 1 at 670 MB a second. Level 3 takes 1.6 times as long for 1 % less,
/// and level 9 nine times as long for 9 %: what is left are addresses and hashes.
pub const COMPRESSION_LEVEL: i32 = 1;

/// What compressing at [`COMPRESSION_LEVEL`] takes, in bytes: the window of 512 KiB, the tables over it, and buffers.
pub const COMPRESSION_SIZE: u64 = 3 << 20;

/// The default of `--changes`: one list in this many is in full. At a list every ten seconds that is once an hour,
/// which costs little beside the changes, and a reader has to go through an hour's changes at most.
pub const CHANGES_FULL_LISTS_DEFAULT: u64 = 360;

/// The most lists from one in full to the next: a day of them at ten seconds. They are kept and removed together.
pub const CHANGES_FULL_LISTS_MAX: u64 = 8_640;

/// The most list files, oldest first, that are remembered until they are due for removal: about two megabytes. More are
/// looked up in the directory when these are gone.
pub const KEPT_FILES_MAX: usize = 1 << 15;

/// Lists after which a directory is looked through again: somebody else may have removed files, and then too many would
/// be removed.
pub const KEPT_FILES_CHECK_LISTS: u64 = 360;

/// With each list or segment that is written, one in so many of the older ones may be removed for its age. The ends of
/// a day's lists say how old they are, and a clock that leaps ahead makes them all old at once: while it is wrong for a
/// few lists, most stay. A limit that was lowered is kept from the start, when all that is too old goes.
pub const KEPT_AGED_SHARE: usize = 32;

/// But at least so many may: more than comes in, so that what has to go does.
pub const KEPT_AGED_MIN: usize = 2;

const _: () = assert!(CHANGES_FULL_LISTS_DEFAULT <= CHANGES_FULL_LISTS_MAX);

// Snapshot files.

/// The most bytes of a snapshot file, before compression: tables for a churn of ten million. A reader holds at most
/// about twice this, whatever the file claims.
pub const SNAPSHOT_SIZE_MAX: u64 = 1 << 30;

/// The memory that a half-open connection of a snapshot takes in a reader, in bytes. It is more than twice what it
/// takes in the file, so this is what has to fit beside the tables. The half-open connections of fifty routers under a
/// flood do.
pub const SNAPSHOT_HALF_OPEN_SIZE: u64 = 72;

/// The largest window that a snapshot's compression may ask for, as a power of two: 8 MiB, sixteen times what is
/// written.
pub const SNAPSHOT_WINDOW_LOG_MAX: u32 = 23;

/// The longest name of a router, in bytes: what a host name may have.
pub const ROUTER_NAME_SIZE_MAX: usize = 64;

/// The most routers whose snapshots can be merged into one: more than a site has.
pub const SNAPSHOT_SOURCES_MAX: usize = 1_024;

/// Cells that are read or written at once: some tens of kilobytes, which stay in the cache.
pub const SNAPSHOT_CELLS_AT_ONCE: usize = 1 << 10;

/// The number of which the cells of a snapshot's subtable are a multiple: it folds by 2 to 6, 10, 12, 15, 20, 30 and
/// 60.
pub const FOLD_BASE: u32 = 60;

// A state that outlives the process.

/// The version of the files that hold a state. Another version is refused, since their content is private to one
/// version.
pub const STATE_VERSION: u32 = 4;

/// Generations of a state that are kept: the newest, and one to fall back to.
pub const STATE_GENERATION_COUNT: usize = 2;

/// The highest count that is believed of a saved state: adding to it overflows in no run, and at a billion packets a
/// second it takes years to reach.
pub const STATE_COUNT_MAX: u64 = 1 << 56;

/// The largest offset of a time base from 1970, in nanoseconds: leaps add up, and no run comes near.
pub const STATE_OFFSET_MAX_NS: i128 = 1 << 96;

/// The default of `--state-every`: the most that a replay has to do again after a crash, and few enough writes for a
/// flash disk.
pub const STATE_EVERY_DEFAULT: Duration = Duration::from_secs(60);

/// The most that one listed connection takes in a saved state, in bytes: the key and the start of an IPv6 connection.
pub const STATE_ENTRY_SIZE: u64 = 48;

/// The first bytes of an input by which, together with its size, a replay recognises it.
pub const STATE_INPUT_HEAD_SIZE: u64 = 64 << 10;

const _: () = assert!(STATE_GENERATION_COUNT >= 2, "the newest may be damaged");

// The agent.

/// The longest line of a list, in bytes: an IPv6 connection with two VLAN tags takes half of it.
pub const LIST_LINE_SIZE_MAX: usize = 1 << 10;

/// How often the agent looks through the directory of snapshots, even if the system reported no change: often enough
/// for intervals of seconds.
pub const AGENT_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The longest that the agent waits for a change before it looks whether it is to stop.
pub const AGENT_WAIT_MAX: Duration = Duration::from_millis(100);

/// Earlier runs that the agent remembers, so that a late snapshot of one is not taken for a new run: a restart a day
/// for two months, or an hour that went very wrong.
pub const AGENT_RUNS_MAX: usize = 64;

/// The most bytes of the agent's note of its position: all runs that it can name, with router names of full length,
/// take less.
pub const AGENT_POSITION_SIZE_MAX: u64 = 64 << 10;

const _: () = assert!(AGENT_RUNS_MAX as u64 * (6 * ROUTER_NAME_SIZE_MAX as u64 + 256) < AGENT_POSITION_SIZE_MAX);

// Sums of snapshots.

/// The most differences that a digest can be asked to reconcile: for more of them a digest is no smaller than the
/// snapshot.
pub const DIGEST_DIFFERENCES_MAX: u64 = CONNECTIONS_MAX;

/// The part of a digest's differences for which either family has room however little of it is open, as one in this
/// many: the other side may have more.
pub const DIGEST_FAMILY_SHARE: u64 = 16;

const _: () = assert!(1 << AGGREGATE_LOST_BITS_MAX >= SNAPSHOT_SOURCES_MAX * SNAPSHOT_SOURCES_MAX);
const _: () = assert!(AGGREGATE_TRIES_MIN / AGGREGATE_TRIES_SHARE >= 1 << AGGREGATE_LOST_BITS_MAX);

// The index of a list, the sizes of digests, and reads of the metrics server.

/// How full the lines of a list's index become on average before it grows, in percent: one connection in five is then
/// in the line after its own.
pub const LIST_INDEX_LOAD_PERCENT_MAX: usize = 90;

/// By which part a list's index grows at least, as one in this many: a quarter keeps the memory close to what is
/// listed, and a list is indexed anew a few times while it doubles.
pub const LIST_INDEX_GROWTH_DIVISOR: usize = 4;

/// What is added to an estimate of differences when a digest for them is asked for, in percent: twice the error of the
/// smallest digests' estimates, and something for the next try.
pub const DIGEST_MARGIN_PERCENT: u64 = 25;

/// How many standard deviations a family's part of the differences may lie above its part of the open connections, in a
/// digest: three are passed about once in a thousand digests.
pub const DIGEST_SHARE_DEVIATIONS: f64 = 3.0;

/// Bytes that the metrics server reads of a client at once: an ordinary request whole.
pub const SERVE_READ_SIZE: usize = 1 << 10;

const _: () = assert!(SERVE_READ_SIZE <= REQUEST_SIZE_MAX);

// The run as a whole.

/// The time within which a second signal to end counts as the same one: `timeout` signals its child and then the
/// process group, and a service manager may do the same. A person who has seen that a run does not end takes longer.
pub const SAME_SIGNAL_MAX: Duration = Duration::from_millis(500);

/// Messages of a live capture that wait to be shown, at most: minutes of intervals of a second, as long as a terminal
/// is stopped by somebody who reads it.
pub const UNSAID_MAX: usize = 1 << 8;

/// How long the end of a live capture waits until what is left to be said is shown: standard error may be a pipe that
/// nobody reads, and a service manager waits longer.
pub const LAST_MESSAGE_PATIENCE: Duration = Duration::from_secs(3);

/// The longest that a capture thread with nothing to read sleeps, in milliseconds: it may take this long to stop.
pub const LIVE_WAIT_MAX_MS: u64 = 100;

/// How often the thread that started a live capture looks whether it is to stop and whether all other threads are
/// running: soon enough for somebody at a terminal.
pub const LIVE_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The most intervals that have ended and whose list is not written yet. Beyond this the next end is passed over, and
/// its interval becomes part of the one after it.
pub const PENDING_INTERVALS_MAX: usize = 4;

/// The smallest difference between the wall clock and its expected value that a live capture takes for a step, in
/// nanoseconds: a tick, since times are kept no finer.
pub const WALL_STEP_MIN_NS: i64 = TICK_NS;

/// How long a live capture waits for packets that came before the end of an interval and that the kernel has not shown
/// yet, in nanoseconds: as long as shards do.
pub const END_PATIENCE_NS: i64 = MERGE_PATIENCE_NS;

/// How long before the end of an interval a live capture begins to read what the kernel has lost before it reads
/// packets, in nanoseconds: longer than the packets between two readings take.
pub const LOSSES_LEAD_NS: i64 = 1_000_000;

/// The memory that may be taken by default, in bytes: what a router can spare.
pub const MEMORY_SIZE_DEFAULT: u64 = 256 << 20;

/// Packets between two checks whether to stop: even a slow pipe delivers this many in a moment.
pub const STOP_INTERVAL_PACKETS: u64 = 1 << 6;

/// Packets between two reports of progress: some milliseconds.
pub const OBSERVE_INTERVAL_PACKETS: u64 = 1 << 14;

const _: () = assert!(OBSERVE_INTERVAL_PACKETS.is_multiple_of(STOP_INTERVAL_PACKETS));

// Metrics and their server.

/// The longest time that latencies tell apart, in nanoseconds: an hour. What takes longer is no latency any more.
pub const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// The window of latency quantiles, which cover between one and two windows: long enough for some scrapes, short enough
/// that present trouble shows.
pub const LATENCY_WINDOW: Duration = Duration::from_secs(300);

/// How late a list may come without being called late, in percent of its interval: decoding and writing take time.
pub const HEALTH_GRACE_PERCENT: u32 = 50;

/// The lateness that is allowed to a list however short its interval: a second of load must not call anybody at night.
pub const HEALTH_GRACE_MIN: Duration = Duration::from_secs(5);

/// The longest request to the metrics server, in bytes: a browser with its cookies sends less.
pub const REQUEST_SIZE_MAX: usize = 8 << 10;

/// The most headers of a request to the metrics server.
pub const REQUEST_HEADER_COUNT_MAX: usize = 64;

/// The most clients that the metrics server serves at once; another one pushes out the oldest. A scrape lasts some
/// milliseconds, so slow clients cannot keep honest ones out, and hold a megabyte or two at most.
pub const SERVE_CONNECTION_COUNT_MAX: usize = 32;

/// How long a client of the metrics server may take for everything: as long as Prometheus waits by default.
pub const SERVE_TIME_MAX: Duration = Duration::from_secs(10);

/// The most that is read of a client after its request, in bytes, so that the client can read the answer: closing with
/// unread bytes would reset the connection.
pub const SERVE_DISCARD_SIZE_MAX: usize = 64 << 10;

/// How long the metrics server waits when the system lets it take no more clients.
pub const SERVE_RETRY: Duration = Duration::from_millis(100);

// Generated traffic.

/// The end of generated time, in microseconds since 1970: seconds in a pcap file have 32 bits (the year 2106).
pub const GENERATED_TIME_MAX_US: u64 = (u32::MAX as u64) * 1_000_000;

/// The longest time from one packet of a connection to the next that can be asked for, in microseconds: a day. Times up
/// to it add up without overflow, and longer ones are a mistake.
pub const GENERATED_WAIT_MAX_US: u64 = 86_400_000_000;

/// The most packets of a flood, and data packets of a connection, that can be asked for: at a packet a microsecond they
/// last for twelve days, and times computed from their number stay within 64 bits.
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

/// The most bits lost in dividing a key sum by an even count: each doubles the keys that are tried.
pub const TABLE_LOST_BITS_MAX: u32 = 16;

/// Divisions that are tried for each cell of a table, on average: honest keys need one or two.
pub const TABLE_DIVISIONS_PER_CELL: u64 = 64;

/// Divisions that are tried in any table, however small: enough for some counts with the most factors of two.
pub const TABLE_DIVISIONS_MIN: u64 = 1 << 19;

/// The largest value that a table checks, in bytes: checks are made on the stack.
pub const TABLE_VALUE_SIZE_MAX: usize = 256;

/// How many steps `get` follows from a key's cells to those of its neighbours: after three steps little is gained.
pub const TABLE_GET_DEPTH_MAX: usize = 3;

/// The most cells that `get` visits for one key, so that no table makes it slow.
pub const TABLE_GET_VISITS_MAX: usize = 512;

/// The most passes over known or listed pairs to separate tangled keys: each pass helps the next, and few are needed.
pub const TABLE_PASSES_MAX: usize = 64;

/// Strata of a size estimator: enough for billions of differences.
pub const ESTIMATOR_STRATUM_COUNT: usize = 32;

/// Cells of one stratum: enough to list some fifty differences, so that the estimate is off by 8 % on average.
pub const ESTIMATOR_CELL_COUNT: u32 = 80;

/// The largest count of a counter's cell that is split between two keys: it takes a try for every share, and splits are
/// meant for small multiplicities.
pub const COUNTER_SPLIT_COUNT_MAX: i64 = 1 << 12;

/// Shares that are tried for each cell of a counter, on average: at the threshold of one kept key a cell of four keys
/// is tried some twenty times with two hundred shares.
pub const COUNTER_SPLITS_PER_CELL: u64 = 1 << 12;

/// Shares that are tried in any counter, however small: the smallest have no average.
pub const COUNTER_SPLITS_MIN: u64 = 1 << 16;

/// The most keys that splits take out of a counter, for each of its cells: three times as many as any counter lists.
pub const COUNTER_KEYS_PER_CELL: usize = 4;

const _: () = assert!(TABLE_DIVISIONS_MIN > 1 << TABLE_LOST_BITS_MAX);

// B-fields.

/// The most ones of a code word: with these every 32-bit value has a word of 64 bits.
pub const BFIELD_KAPPA_MAX: u32 = 8;

/// The most hash functions of a field: the rarest false positives of a code with a single one take 60.
pub const BFIELD_HASH_COUNT_MAX: u32 = 64;

/// The lowest false positive rate that a field is planned for: nobody looks up more keys than its inverse.
pub const BFIELD_FALSE_POSITIVE_MIN: f64 = 1e-18;

/// The largest share of keys that an array hands on to the next: beyond it the next arrays cost more than better ones
/// would.
pub const BFIELD_INDETERMINATE_MAX: f64 = 0.25;

/// Keys that the last array may leave without an answer, on average: one field in a thousand leaves one.
pub const BFIELD_KEYS_LEFT_MAX: f64 = 1e-3;

/// The most arrays of a field: each hands on a quarter of its keys at most, so these are enough for 2^40 keys.
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

/// The growth at which a growing field is settled, as one in this many of its pairs: its log is then read only a few
/// times in all.
pub const BFIELD_SETTLE_SHARE: u64 = 4;

/// The fewest new pairs for which a growing field is settled.
pub const BFIELD_SETTLE_PAIRS_MIN: u64 = 1 << 14;

// Planning.

/// The most items that are placed to try a planned table: a second or two.
pub const PLAN_SIMULATED_ITEMS_MAX: u64 = 10_000_000;

/// The most trials of a planned table: more would tell little more.
pub const PLAN_TRIALS_MAX: u64 = 100_000;

/// The lowest failure rate of a table that can be planned for: with one table a second it fails once in twelve days.
pub const PLAN_FAILURE_MIN: f64 = 1e-6;

/// The highest failure rate of a table that can be planned for: above it a table hardly ever lists.
pub const PLAN_FAILURE_MAX: f64 = 0.1;
