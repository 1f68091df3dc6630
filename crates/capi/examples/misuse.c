/* What a caller may do wrong, and what it gets: a status and a text, never a crash. */
#include "flowpeel.h"
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(const char *what, enum flowpeel_status status, enum flowpeel_status expected, const char *text) {
    if (status != expected || (text && !strstr(flowpeel_last_error(), text))) {
        fprintf(stderr, "%s: status %d, \"%s\"\n", what, (int)status, flowpeel_last_error());
        failures++;
    }
}

static void count_event(void *context, const struct flowpeel_event *event) {
    unsigned *counts = context;
    counts[event->kind == FLOWPEEL_OPENED ? 0 : 1]++;
}

static struct flowpeel_tcp_header header(uint8_t flags, uint32_t seq, uint32_t ack) {
    struct flowpeel_tcp_header header = {.ip_version = 4, .flags = flags, .seq = seq, .ack = ack};
    struct flowpeel_end client = {{10, 0, 0, 1}, 40000}, server = {{10, 0, 0, 2}, 443};
    header.source = ack && flags != 0x10 && flags != 0x14 ? server : client;
    header.destination = header.source.port == 443 ? client : server;
    return header;
}

int main(void) {
    struct flowpeel_config *config = flowpeel_config_replay();
    unsigned events[2] = {0, 0};
    struct flowpeel_callbacks callbacks = {.context = events, .event = count_event};
    struct flowpeel_engine *engine = NULL;
    struct flowpeel_port *port = NULL, *ports[2];
    struct flowpeel_counters counters;

    expect("no configuration", flowpeel_config_set(NULL, FLOWPEEL_SHARDS, 1), FLOWPEEL_NULL, "config is null");
    expect("no such setting", flowpeel_config_set(config, 99, 1), FLOWPEEL_INVALID, "no setting 99");
    expect("no callbacks", flowpeel_start_replay(config, NULL, &engine, &port), FLOWPEEL_NULL, "callbacks is null");
    expect("nowhere", flowpeel_start_replay(config, &callbacks, NULL, &port), FLOWPEEL_NULL, "engine or port");
    expect("live without intervals", flowpeel_start_live(config, &callbacks, 2, &engine, ports), FLOWPEEL_INVALID, "every");
    expect("no ports", flowpeel_start_live(config, &callbacks, 0, &engine, ports), FLOWPEEL_INVALID, "port_count");
    flowpeel_config_set(config, FLOWPEEL_CONNECTIONS_MAX, 1);
    expect("too few", flowpeel_start_replay(config, &callbacks, &engine, &port), FLOWPEEL_INVALID, "connections_max");
    flowpeel_config_set(config, FLOWPEEL_CONNECTIONS_MAX, 10000);
    expect("start", flowpeel_start_replay(config, &callbacks, &engine, &port), FLOWPEEL_OK, NULL);

    struct flowpeel_tcp_header syn = header(0x02, 100, 0), answer = header(0x12, 500, 101);
    struct flowpeel_tcp_header done = header(0x10, 101, 501), reset = header(0x14, 101, 501), bad = syn;
    bad.ip_version = 5;
    expect("no port", flowpeel_port_header(NULL, 1, &syn), FLOWPEEL_NULL, "port is null");
    expect("no port with a clock", flowpeel_port_own_clock(NULL), FLOWPEEL_NULL, "port is null");
    expect("no clock", flowpeel_port_own_clock(port), FLOWPEEL_INVALID, "packets' time");
    expect("no header", flowpeel_port_header(port, 1, NULL), FLOWPEEL_NULL, "header is null");
    expect("no such version", flowpeel_port_header(port, 1, &bad), FLOWPEEL_INVALID, "ip_version");
    expect("no bytes", flowpeel_port_frame(port, 1, 1, NULL, 60), FLOWPEEL_NULL, "bytes is null");
    expect("an empty frame", flowpeel_port_frame(port, 1, 1, NULL, 0), FLOWPEEL_OK, NULL);
    expect("syn", flowpeel_port_header(port, 1000, &syn), FLOWPEEL_OK, NULL);
    expect("answer", flowpeel_port_header(port, 2000, &answer), FLOWPEEL_OK, NULL);
    expect("done", flowpeel_port_header(port, 3000, &done), FLOWPEEL_OK, NULL);
    expect("reset", flowpeel_port_header(port, 4000, &reset), FLOWPEEL_OK, NULL);
    expect("idle", flowpeel_port_idle(port, 5000), FLOWPEEL_OK, NULL);
    expect("free", flowpeel_port_free(port), FLOWPEEL_OK, NULL);
    expect("free nothing", flowpeel_port_free(NULL), FLOWPEEL_OK, NULL);
    expect("stop", flowpeel_stop(engine, &counters), FLOWPEEL_OK, NULL);
    expect("stop nothing", flowpeel_stop(NULL, &counters), FLOWPEEL_NULL, "engine is null");
    if (counters.packets != 5 || counters.opened != 1 || counters.closed != 1 || counters.unusable != 1)
        failures++, fprintf(stderr, "%llu packets\n", (unsigned long long)counters.packets);
    if (events[0] != 1 || events[1] != 1)
        failures++, fprintf(stderr, "%u openings and %u closings were reported\n", events[0], events[1]);

    expect("a port in use", flowpeel_start_replay(config, &callbacks, &engine, &port), FLOWPEEL_OK, NULL);
    expect("stop before", flowpeel_stop(engine, NULL), FLOWPEEL_FAILED, "drop it");
    flowpeel_port_free(port);
    flowpeel_config_set(config, FLOWPEEL_EVERY_MS, 100);
    expect("live", flowpeel_start_live(config, &callbacks, 2, &engine, ports), FLOWPEEL_OK, NULL);
    expect("stop with ports", flowpeel_stop(engine, NULL), FLOWPEEL_OK, NULL);
    expect("a port behind the end", flowpeel_port_idle(ports[0], 1), FLOWPEEL_OK, NULL);
    flowpeel_port_free(ports[0]);
    flowpeel_port_free(ports[1]);
    flowpeel_config_free(config);
    flowpeel_config_free(NULL);
    return failures ? 1 : 0;
}
