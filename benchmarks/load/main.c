/* The load generator: `load MODE name=value...`. Modes: produce, fetch, latency, first, commit, rebalance,
 * consumer_group, idle_groups, transactions, share_consume, share_acknowledge, share_redelivery, sink; each has its own
 * file, but for `first`, which is in produce.c, and `share_acknowledge`, which is in share_consume.c.
 *
 * It exists because every full client is slower than a good broker: this one sends prepared bytes and throws away what
 * it reads, so that what is measured is the broker. One thread serves all connections, and leaves the other core alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t wall_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static int by_size(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return difference < 0 ? -1 : difference > 0;
}

double median(double *numbers, int count) {
    qsort(numbers, (size_t)count, sizeof *numbers, by_size);
    return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

int connect_to(const struct options *options, int patient) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) fail("host=%s is no IPv4 address", options->host);
    int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (made < 0) fail("no socket: %s", strerror(errno));
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(made, (struct sockaddr *)&address, sizeof address) < 0) {
        if (!patient) fail("cannot connect to %s:%d: %s", options->host, options->port, strerror(errno));
        close(made);
        return -1;
    }
    return made;
}

void send_all(int socket, const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(socket, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) fail("the broker closed the connection: %s", strerror(errno));
        data += sent;
        size -= (size_t)sent;
    }
}

static int receive_exactly(int socket, uint8_t *to, size_t size) {
    while (size > 0) {
        ssize_t got = recv(socket, to, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        to += got;
        size -= (size_t)got;
    }
    return 1;
}

size_t receive_frame(int socket, uint8_t **buffer, size_t *capacity) {
    uint8_t length[4];
    if (!receive_exactly(socket, length, 4)) return 0;
    size_t size = (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | length[3];
    if (size > 256u << 20) fail("the broker announced a response of %zu bytes", size);
    if (size > *capacity) {
        *capacity = size;
        *buffer = realloc(*buffer, size);
        if (*buffer == NULL) fail("no memory for a response of %zu bytes", size);
    }
    return receive_exactly(socket, *buffer, size) ? size : 0;
}

static void set_option(struct options *options, const char *word) {
    const char *equals = strchr(word, '=');
    if (equals == NULL) fail("%s: options are written name=value", word);
    const char *value = equals + 1;
    struct { const char *name; int *number; } numbers[] = {
        {"port", &options->port}, {"partitions", &options->partitions}, {"connections", &options->connections},
        {"in_flight", &options->in_flight}, {"acks", &options->acks}, {"produce_version", &options->produce_version},
        {"batch_records", &options->batch_records}, {"record_bytes", &options->record_bytes},
        {"partition_bytes_max", &options->partition_bytes_max}, {"rate", &options->rate},
        {"seconds", &options->seconds}, {"groups", &options->groups}, {"members", &options->members},
        {"repeats", &options->repeats}, {"transaction_batches", &options->transaction_batches},
        {"transaction_version", &options->transaction_version}, {"records_max", &options->records_max},
    };
    size_t length = (size_t)(equals - word);
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (strlen(numbers[at].name) == length && strncmp(word, numbers[at].name, length) == 0) {
            *numbers[at].number = atoi(value);
            return;
        }
    }
    if (strncmp(word, "host=", 5) == 0) options->host = value;
    else if (strncmp(word, "topic=", 6) == 0) options->topic = value;
    else if (strncmp(word, "name=", 5) == 0) options->name = value;
    else if (strncmp(word, "requests=", 9) == 0) options->requests = atoll(value);
    else if (strncmp(word, "bytes=", 6) == 0) options->bytes = atoll(value);
    else fail("no such option: %s", word);
}

static void check_options(const struct options *options) {
    if (options->topic == NULL || options->port == 0) fail("topic= and port= are needed");
    if (options->partitions < 1 || options->connections < 1 || options->in_flight < 1 || options->batch_records < 1)
        fail("partitions, connections, in_flight and batch_records are at least 1");
    if (options->record_bytes < 16) fail("record_bytes is at least 16");
    if (options->groups < 1 || options->repeats < 1 || options->transaction_batches < 1 || options->records_max < 1)
        fail("groups, repeats, transaction_batches and records_max are at least 1");
    if (options->transaction_version < 1 || options->transaction_version > 2) fail("transaction_version is 1 or 2");
    if (options->produce_version < 9 || options->produce_version > 12) fail("produce_version is 9 to 12");
}

int main(int count, char **words) {
    struct options options = {
        .host = "127.0.0.1", .partitions = 1, .connections = 1, .in_flight = 5, .acks = 1, .produce_version = 12,
        .batch_records = 1, .record_bytes = 100, .requests = 1000, .bytes = 100 << 20,
        .partition_bytes_max = 1 << 20, .rate = 1000, .seconds = 10, .name = "load", .groups = 1, .members = 50,
        .repeats = 10, .transaction_batches = 1, .transaction_version = 2, .records_max = 500,
    };
    struct { const char *name; void (*run)(const struct options *); int members_min; } modes[] = {
        {"produce", run_produce, 0}, {"fetch", run_fetch, 0}, {"latency", run_latency, 0}, {"first", run_first, 0},
        {"sink", run_sink, 0}, {"commit", run_commit, 0}, {"idle_groups", run_idle_groups, 0},
        {"transactions", run_transactions, 0}, {"rebalance", run_rebalance, 2},
        {"consumer_group", run_consumer_group, 2}, {"share_consume", run_share_consume, 1},
        {"share_acknowledge", run_share_acknowledge, 1}, {"share_redelivery", run_share_redelivery, 2},
    };
    if (count < 2) fail("usage: load MODE name=value...");
    for (int at = 2; at < count; at++) set_option(&options, words[at]);
    check_options(&options);
    for (size_t at = 0; at < sizeof modes / sizeof *modes; at++) {
        if (strcmp(words[1], modes[at].name) == 0) {
            if (options.members < modes[at].members_min) fail("%s: members at least %d", words[1], modes[at].members_min);
            modes[at].run(&options);
            return 0;
        }
    }
    fail("no such mode: %s", words[1]);
}
