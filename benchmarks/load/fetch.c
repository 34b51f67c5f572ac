/* A Fetch loop that reads and discards: one request at a time on each connection, as the clients do, from the oldest
 * record on, over and over until enough bytes have come. The partitions are dealt out to the connections. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "load.h"
#include "requests.h"

enum { WAIT_MS = 500, EVENTS_MAX = 64, FRAME_BYTES_MAX = 256 << 20 };

struct consumer {
    int socket, count;
    struct position *positions;
    struct writer request;
    uint8_t *received;
    size_t capacity, have;
};

static void ask(const struct options *options, struct consumer *consumer) {
    put_fetch(&consumer->request, options->topic, consumer->positions, consumer->count, options->partition_bytes_max,
        WAIT_MS);
    send_all(consumer->socket, consumer->request.data, consumer->request.size);
}

/* Receives what has come; the size of the response once it is whole, else 0. */
static size_t receive_some(struct consumer *consumer) {
    size_t needed = consumer->have < 4 ? 4 : 4 + (size_t)load_number(consumer->received, 4);
    if (needed > FRAME_BYTES_MAX) fail("the broker announced a response of %zu bytes", needed);
    if (needed > consumer->capacity) {
        consumer->capacity = needed;
        consumer->received = realloc(consumer->received, needed);
        if (consumer->received == NULL) fail("no memory for a response of %zu bytes", needed);
    }
    /* Nothing follows a response before the next request, so it is safe to take all there is. */
    ssize_t got = recv(consumer->socket, consumer->received + consumer->have, consumer->capacity - consumer->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) fail("the broker closed the connection in the middle of a fetch");
    consumer->have += (size_t)got;
    if (consumer->have < 4 || consumer->have < 4 + (size_t)load_number(consumer->received, 4)) return 0;
    return consumer->have - 4;
}

/* A position at the end of its partition starts again, so that the load does not end with the data. */
static void rewind_finished(struct consumer *consumer) {
    for (int at = 0; at < consumer->count; at++) {
        struct position *position = &consumer->positions[at];
        if (position->offset >= position->high_watermark) position->offset = 0;
    }
}

static void start_consumer(const struct options *options, struct consumer *consumer, int number, int epoll) {
    consumer->socket = connect_to(options, 0);
    consumer->capacity = 2 << 20;
    consumer->received = malloc(consumer->capacity);
    consumer->positions = calloc((size_t)options->partitions, sizeof *consumer->positions);
    for (int partition = number; partition < options->partitions; partition += options->connections) {
        consumer->positions[consumer->count++].partition = partition;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = consumer};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, consumer->socket, &event) < 0) fail("epoll: %s", strerror(errno));
    ask(options, consumer);
}

void run_fetch(const struct options *options) {
    if (options->connections > options->partitions) fail("more connections than partitions: some would read nothing");
    struct consumer *consumers = calloc((size_t)options->connections, sizeof *consumers);
    struct epoll_event events[EVENTS_MAX];
    int64_t bytes = 0, records = 0, answers = 0;
    int epoll = epoll_create1(0);
    double used = cpu_seconds();
    int64_t start = now_ns();
    for (int at = 0; at < options->connections; at++) start_consumer(options, &consumers[at], at, epoll);
    while (bytes < options->bytes) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 60000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) fail("no answer to a fetch for a minute");
        for (int at = 0; at < ready; at++) {
            struct consumer *consumer = events[at].data.ptr;
            size_t size = receive_some(consumer);
            if (size == 0) continue;
            struct fetched found =
                read_fetch(consumer->received + 4, size, consumer->positions, consumer->count, NULL, NULL);
            if (found.error != 0) fail("a Fetch request was answered with error %d", found.error);
            bytes += (int64_t)found.bytes;
            records += found.records;
            answers++;
            consumer->have = 0;
            rewind_finished(consumer);
            ask(options, consumer);
        }
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f}\n",
        seconds, (long long)answers, (long long)records, (long long)bytes, cpu_seconds() - used);
}
