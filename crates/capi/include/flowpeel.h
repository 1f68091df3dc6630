// The C interface of flowpeel: which TCP connections are open, from the packets that are pushed in.
//
// cbindgen writes this file from crates/capi/src/lib.rs.

#ifndef FLOWPEEL_H
#define FLOWPEEL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// What a function returns.
typedef enum flowpeel_status {
  // It was done.
  FLOWPEEL_OK = 0,
  // A pointer is null that must not be.
  FLOWPEEL_NULL = 1,
  // A value is out of its range, or does not fit the others.
  FLOWPEEL_INVALID = 2,
  // Something failed on the way.
  FLOWPEEL_FAILED = 3,
  // There is an error in flowpeel itself. The handle must only be freed.
  FLOWPEEL_PANIC = 4,
} flowpeel_status;

// The state of a listed connection.
typedef enum flowpeel_state {
  // The handshake is complete and not both sides have closed.
  FLOWPEEL_ESTABLISHED = 0,
  // The client's SYN was seen, and no answer to it.
  FLOWPEEL_SYN_SENT = 1,
  // The server's SYN-ACK was seen, and the handshake is not complete.
  FLOWPEEL_SYN_RECV = 2,
} flowpeel_state;

// What happened to a connection.
typedef enum flowpeel_event_kind {
  // It was established.
  FLOWPEEL_OPENED = 0,
  // Both sides sent a FIN.
  FLOWPEEL_CLOSED_FIN = 1,
  // One side sent a RST.
  FLOWPEEL_CLOSED_RST = 2,
  // Nothing was seen of it for too long.
  FLOWPEEL_CLOSED_TIMEOUT = 3,
  // It was evicted because of its age.
  FLOWPEEL_CLOSED_EVICTED = 4,
  // Another connection between the same ends took its place.
  FLOWPEEL_CLOSED_REPLACED = 5,
  // It has not ended: the event of its closing was wrong.
  FLOWPEEL_REOPENED = 6,
} flowpeel_event_kind;

// The settings of `flowpeel_config_set`. Times are in ms; for those that may be none, 0 is none.
typedef enum flowpeel_setting {
  // The length of an interval; none makes a single list at the end, by packets' time only.
  FLOWPEEL_EVERY_MS = 0,
  // The threads that track connections, 1 to 8. Lists do not depend on it.
  FLOWPEEL_SHARDS = 1,
  // The connections that can be open at once.
  FLOWPEEL_CONNECTIONS_MAX = 2,
  // The half-open connections that are kept; 0 derives them.
  FLOWPEEL_HALF_OPEN_MAX = 3,
  // The openings and closings of an interval that tables are made for; 0 derives them.
  FLOWPEEL_CHURN = 4,
  // The memory that may be taken, in bytes.
  FLOWPEEL_MEMORY_SIZE_MAX = 5,
  // How long a half-open connection is kept.
  FLOWPEEL_SYN_TIMEOUT_MS = 6,
  // After how long a connection of which nothing is seen is taken off the list; or none.
  FLOWPEEL_IDLE_TIMEOUT_MS = 7,
  // The age at which a connection is taken off the list; or none.
  FLOWPEEL_MAX_AGE_MS = 8,
  // One in this many packets mid-stream is looked at, to find connections older than the start; 0 at none.
  FLOWPEEL_PICKUP = 9,
  // Whether connections of which only one side is seen are listed.
  FLOWPEEL_ONE_WAY = 10,
  // Whether VLAN tags are part of a connection's key.
  FLOWPEEL_VLAN_KEY = 11,
  // Whether a SYN-ACK is enough to open a connection, because packets without a flag are not pushed in.
  FLOWPEEL_ANSWER_OPENS = 12,
} flowpeel_setting;

// A configuration.
typedef struct flowpeel_config flowpeel_config;

// A running engine.
typedef struct flowpeel_engine flowpeel_engine;

// A port of an engine, by either kind of time.
typedef struct flowpeel_port flowpeel_port;

// What a list says of itself.
typedef struct flowpeel_list_header {
  // The number of the interval, from 1.
  uint64_t interval;
  // When the interval began, in ns since 1970.
  int64_t start_ns;
  // When it ended.
  int64_t end_ns;
  // Whether every connection that is known to be open is listed, and none that has closed.
  bool complete;
  // Whether no list comes after this one.
  bool is_last;
  // The established connections listed.
  uint64_t flows;
  // The half-open connections listed.
  uint64_t half_open;
  // About how many differences between the list and the truth are known to exist.
  uint64_t missing;
  // Connections that opened in the interval.
  uint64_t opened;
  // Connections that closed in it.
  uint64_t closed;
  // Signals lost in it because a queue was full.
  uint64_t dropped;
} flowpeel_list_header;

// An address and a port.
typedef struct flowpeel_end {
  // The address in network order; of IPv4 the first four bytes.
  uint8_t address[16];
  // The port, in the byte order of the machine.
  uint16_t port;
} flowpeel_end;

// A listed connection. Times are in ns since 1970, to 100 ms.
typedef struct flowpeel_row {
  // The client.
  struct flowpeel_end client;
  // The server.
  struct flowpeel_end server;
  // The version of IP: 4 or 6.
  uint8_t ip_version;
  // The number of VLAN tags, where they are part of the key.
  uint8_t vlan_count;
  // The VLAN identifiers, outermost first.
  uint16_t vlan[2];
  // The state.
  enum flowpeel_state state;
  // Whether the handshake was not seen. Then `start_ns` is the time of the first packet seen.
  bool midstream;
  // When the connection started.
  int64_t start_ns;
  // The time from its start to the end of the interval, in ns.
  int64_t age_ns;
} flowpeel_row;

// A connection that has opened or closed. Times are in ns since 1970, to 100 ms.
typedef struct flowpeel_event {
  // What happened.
  enum flowpeel_event_kind kind;
  // When it happened.
  int64_t time_ns;
  // When the connection started.
  int64_t start_ns;
  // The client.
  struct flowpeel_end client;
  // The server.
  struct flowpeel_end server;
  // The version of IP: 4 or 6.
  uint8_t ip_version;
  // The number of VLAN tags, where they are part of the key.
  uint8_t vlan_count;
  // The VLAN identifiers, outermost first.
  uint16_t vlan[2];
  // Whether the handshake was not seen.
  bool midstream;
} flowpeel_event;

// What an engine has counted.
typedef struct flowpeel_counters {
  // Packets taken in by all ports.
  uint64_t packets;
  // Packets that could not be used.
  uint64_t unusable;
  // Signals that went to the shards.
  uint64_t signals;
  // Signals lost because a queue was full.
  uint64_t dropped;
  // Connections established.
  uint64_t opened;
  // Established connections that ended.
  uint64_t closed;
  // Events lost because the queue was full.
  uint64_t events_dropped;
} flowpeel_counters;

// Where the output of an engine goes. Every function may be null. `context` is passed to each; they are called until
// `flowpeel_stop` returns, `list`, `row` and `counters` on one thread, `event` on another. What they are given is
// valid during the call. They must not call `flowpeel_stop`.
typedef struct flowpeel_callbacks {
  // What every function is passed first.
  void *context;
  // A list begins.
  void (*list)(void *context, const struct flowpeel_list_header *header);
  // A connection of the list that began last, in the order of their keys.
  void (*row)(void *context, const struct flowpeel_row *row);
  // A connection has opened or closed.
  void (*event)(void *context, const struct flowpeel_event *event);
  // The counters, behind each list.
  void (*counters)(void *context, const struct flowpeel_counters *counters);
} flowpeel_callbacks;

// A TCP header, and what around it matters.
typedef struct flowpeel_tcp_header {
  // The sender.
  struct flowpeel_end source;
  // The receiver.
  struct flowpeel_end destination;
  // The version of IP: 4 or 6.
  uint8_t ip_version;
  // The flag byte: CWR ECE URG ACK PSH RST SYN FIN.
  uint8_t flags;
  // The number of VLAN tags, at most 2.
  uint8_t vlan_count;
  // The VLAN identifiers, outermost first.
  uint16_t vlan[2];
  // The sequence number.
  uint32_t seq;
  // The acknowledgement number.
  uint32_t ack;
  // The bytes of data behind the header, as the length in the IP header says; `UINT32_MAX` if that is not known.
  uint32_t payload_size;
} flowpeel_tcp_header;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The text of the last error on this thread, empty if there was none. It is valid until the next call that fails.
const char *flowpeel_last_error(void);

// A configuration for packets' own time: one list at the end, and the capture is taken at its word. To be freed with
// `flowpeel_config_free`. Never null.
struct flowpeel_config *flowpeel_config_replay(void);

// A configuration for the wall clock, with a list every `every_ms` and a random secret. To be freed with
// `flowpeel_config_free`. Null if the system gives no random numbers.
struct flowpeel_config *flowpeel_config_live(uint64_t every_ms);

// Sets a value; `setting` is one of `flowpeel_setting`. Ranges are checked when an engine is started.
enum flowpeel_status flowpeel_config_set(struct flowpeel_config *config, uint32_t setting, uint64_t value);

// Frees a configuration. Engines keep a copy of theirs. Null is ignored.
void flowpeel_config_free(struct flowpeel_config *config);

// Starts an engine with `port_count` ports that go by the wall clock. On success `*engine` is the engine, and `ports`,
// an array of that length, holds the ports.
enum flowpeel_status flowpeel_start_live(const struct flowpeel_config *config,
                                         const struct flowpeel_callbacks *callbacks,
                                         size_t port_count,
                                         struct flowpeel_engine **engine,
                                         struct flowpeel_port **ports);

// Starts an engine with one port that goes by its packets' time: it waits where a queue is full, and equal packets
// make equal lists. The port has to be freed before the engine is stopped.
enum flowpeel_status flowpeel_start_replay(const struct flowpeel_config *config,
                                           const struct flowpeel_callbacks *callbacks,
                                           struct flowpeel_engine **engine,
                                           struct flowpeel_port **port);

// Says that the packets of a port on the wall clock are stamped by a clock of its own, as a network card's: of any
// epoch. It is mapped onto the engine's by how late packets come at least. To be called before the first packet.
// `FLOWPEEL_INVALID` for a port that goes by its packets' time, which knows no other.
enum flowpeel_status flowpeel_port_own_clock(struct flowpeel_port *port);

// Takes in a frame of `size` bytes that came at `time_ns`, in ns since 1970. `link` is the link type of captures: 1 is
// Ethernet, 101 raw IP. The bytes are taken for the whole frame. A frame that cannot be read is counted.
enum flowpeel_status flowpeel_port_frame(struct flowpeel_port *port,
                                         int64_t time_ns,
                                         uint32_t link,
                                         const uint8_t *bytes,
                                         size_t size);

// Takes in the TCP header of a packet that came at `time_ns`, in ns since 1970: for a router that has parsed it.
enum flowpeel_status flowpeel_port_header(struct flowpeel_port *port,
                                          int64_t time_ns,
                                          const struct flowpeel_tcp_header *header);

// Says that there is nothing to take in up to `now_ns`. A port on the wall clock that has no packets calls this every
// few milliseconds; by packets' own time it does nothing.
enum flowpeel_status flowpeel_port_idle(struct flowpeel_port *port, int64_t now_ns);

// Ends a port's part and frees it. By packets' own time this makes the last list. Null is ignored.
enum flowpeel_status flowpeel_port_free(struct flowpeel_port *port);

// Ends the last interval, waits until its list and all events have been given to the callbacks, and frees the engine,
// whatever it returns. `counters` may be null; it is then not written. Ports on the wall clock may be freed before or
// after.
enum flowpeel_status flowpeel_stop(struct flowpeel_engine *engine, struct flowpeel_counters *counters);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLOWPEEL_H */
