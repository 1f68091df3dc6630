/* Replays a capture through libpcap into the engine, and prints the connections that are open at its end:
 *
 *     client server state, one connection a line, in the order of their keys
 *
 * cc replay.c -I../include -lpcap -L../../../target/release -lflowpeel_capi -o replay && ./replay capture.pcap
 *
 * A router does the same with flowpeel_start_live, a port for each of its threads, and flowpeel_port_idle where a
 * thread has nothing to do. It passes the time stamps of its loop, and no packet waits for the engine.
 */
#include "flowpeel.h"
#include <arpa/inet.h>
#include <pcap/pcap.h>
#include <stdio.h>

static void print_end(const struct flowpeel_end *end, uint8_t ip_version) {
    char text[INET6_ADDRSTRLEN];
    inet_ntop(ip_version == 4 ? AF_INET : AF_INET6, end->address, text, sizeof text);
    printf(ip_version == 4 ? "%s:%u" : "[%s]:%u", text, (unsigned)end->port);
}

/* Called on a thread of the engine's, for each connection of a list. */
static void print_row(void *context, const struct flowpeel_row *row) {
    static const char *const states[] = {"established", "syn_sent", "syn_recv"};
    (void)context;
    print_end(&row->client, row->ip_version);
    putchar(' ');
    print_end(&row->server, row->ip_version);
    printf(" %s\n", states[row->state]);
}

static int fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return fail("usage", "replay CAPTURE");

    char error[PCAP_ERRBUF_SIZE];
    pcap_t *capture = pcap_open_offline_with_tstamp_precision(argv[1], PCAP_TSTAMP_PRECISION_NANO, error);
    if (!capture)
        return fail(argv[1], error);

    struct flowpeel_config *config = flowpeel_config_replay();
    struct flowpeel_callbacks callbacks = {.row = print_row};
    struct flowpeel_engine *engine = NULL;
    struct flowpeel_port *port = NULL;
    enum flowpeel_status status = flowpeel_start_replay(config, &callbacks, &engine, &port);
    flowpeel_config_free(config);
    if (status != FLOWPEEL_OK)
        return fail("cannot start", flowpeel_last_error());

    /* libpcap gives the link type by its own number; those of Ethernet and of most others are the file's. */
    int link = pcap_datalink(capture);
    uint32_t link_type = link == DLT_RAW ? 101 : (uint32_t)link;
    struct pcap_pkthdr *head;
    const u_char *bytes;
    int read;
    while ((read = pcap_next_ex(capture, &head, &bytes)) == 1) {
        int64_t time_ns = (int64_t)head->ts.tv_sec * 1000000000 + head->ts.tv_usec;
        flowpeel_port_frame(port, time_ns, link_type, bytes, head->caplen);
    }
    if (read == PCAP_ERROR)
        fail(argv[1], pcap_geterr(capture));
    pcap_close(capture);

    flowpeel_port_free(port);
    struct flowpeel_counters counters;
    if (flowpeel_stop(engine, &counters) != FLOWPEEL_OK)
        return fail("cannot stop", flowpeel_last_error());
    fprintf(stderr, "%llu packets, %llu connections opened, %llu closed\n", (unsigned long long)counters.packets,
            (unsigned long long)counters.opened, (unsigned long long)counters.closed);
    return read == PCAP_ERROR;
}
