/* What the modes of the load generator share: options, the clock, connections, and how one ends.
 *
 * Options are words `name=value` after the mode. Each mode prints one JSON object on standard output, and anything that
 * goes wrong on standard error with exit status 1.
 */
#ifndef OTTLA_LOAD_LOAD_H
#define OTTLA_LOAD_LOAD_H

#include <stddef.h>
#include <stdint.h>

struct options {
    const char *host, *topic;
    const char *name; /* of groups and transactional ids: each gets a number behind it */
    int port, partitions, connections, in_flight;
    int acks, produce_version;
    int batch_records, record_bytes;
    int64_t requests; /* Produce requests in all */
    int64_t bytes;    /* of batches to fetch in all */
    int partition_bytes_max;
    int rate;         /* records per second */
    int seconds;
    int groups;  /* that commits go to in turn, or that have one member each */
    int members; /* of one group */
    int repeats; /* of a group's changes */
    int records_max; /* that a member of a share group acquires at once */
    int transaction_batches; /* in each */
    int transaction_version; /* 1: partitions are added by the client; 2: by the broker */
};

int64_t now_ns(void);   /* of the monotonic clock */
int64_t wall_ms(void);  /* for timestamps of batches */
double cpu_seconds(void); /* that this process has used */

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

/* A connected socket with Nagle's delay off; -1 if the port is closed and `patient` is set, else it fails. */
int connect_to(const struct options *options, int patient);
void send_all(int socket, const uint8_t *data, size_t size);

/* Receives one whole frame into a buffer that grows, and returns the size of what follows its length; 0 at the end of
 * the connection. */
size_t receive_frame(int socket, uint8_t **buffer, size_t *capacity);

void run_produce(const struct options *options);
void run_fetch(const struct options *options);
void run_latency(const struct options *options);
void run_first(const struct options *options);
void run_sink(const struct options *options);
void run_commit(const struct options *options);
void run_rebalance(const struct options *options);
void run_consumer_group(const struct options *options);
void run_idle_groups(const struct options *options);
void run_transactions(const struct options *options);
void run_share_consume(const struct options *options);
void run_share_acknowledge(const struct options *options);
void run_share_redelivery(const struct options *options);

/* Sorts the numbers; the one in the middle. */
double median(double *numbers, int count);

#endif
