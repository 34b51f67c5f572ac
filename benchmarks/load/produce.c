/* Pipelined Produce requests: prepared frames, a number of them in flight on each of some connections, in turn over the
 * partitions. Also `first`: knocks until the first record is taken, which is when a starting broker serves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "requests.h"

enum { GATHER_MAX = 64, RECEIVE_BYTES = 1 << 16 };

struct producer {
    int socket;
    bool waits_to_write;
    int in_flight, next;  /* next: the partition whose frame is sent next */
    size_t sent_of_next;  /* bytes of that frame that have left */
    uint8_t received[RECEIVE_BYTES];
    size_t have;
};

struct run {
    const struct options *options;
    struct writer *frames; /* one for each partition */
    int64_t unsent, unanswered;
    int epoll;
};

static void watch(struct run *run, struct producer *producer, bool write) {
    struct epoll_event event = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = producer};
    if (epoll_ctl(run->epoll, EPOLL_CTL_MOD, producer->socket, &event) < 0) fail("epoll: %s", strerror(errno));
    producer->waits_to_write = write;
}

/* Counts the frames that a write of so many bytes finished. */
static void account(struct run *run, struct producer *producer, size_t sent) {
    while (sent > 0) {
        size_t left = run->frames[producer->next].size - producer->sent_of_next;
        if (sent < left) {
            producer->sent_of_next += sent;
            return;
        }
        sent -= left;
        producer->sent_of_next = 0;
        producer->next = (producer->next + 1) % run->options->partitions;
    }
}

/* Sends while the limit of requests in flight and the socket allow. A request counts as in flight from its first byte. */
static void send_more(struct run *run, struct producer *producer) {
    for (;;) {
        struct iovec pieces[GATHER_MAX];
        int count = 0, frame = producer->next;
        bool partial = producer->sent_of_next > 0;
        int64_t may = run->options->in_flight - producer->in_flight;
        if (may > run->unsent) may = run->unsent;
        if (partial) may++; /* the frame that is half out is counted already */
        size_t wanted = 0;
        for (; count < may && count < GATHER_MAX; count++, frame = (frame + 1) % run->options->partitions) {
            size_t skip = count == 0 ? producer->sent_of_next : 0;
            pieces[count] = (struct iovec){run->frames[frame].data + skip, run->frames[frame].size - skip};
            wanted += pieces[count].iov_len;
        }
        if (count == 0) {
            if (producer->waits_to_write) watch(run, producer, false);
            return;
        }
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(producer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) sent = 0;
        if (sent < 0) fail("the broker closed the connection: %s", strerror(errno));
        int begun = 0;
        for (size_t covered = 0; begun < count && covered < (size_t)sent; begun++) covered += pieces[begun].iov_len;
        if (partial && begun > 0) begun--;
        producer->in_flight += begun;
        run->unsent -= begun;
        account(run, producer, (size_t)sent);
        if ((size_t)sent < wanted) {
            if (!producer->waits_to_write) watch(run, producer, true);
            return;
        }
    }
}

static void receive_answers(struct run *run, struct producer *producer) {
    ssize_t got = recv(producer->socket, producer->received + producer->have, RECEIVE_BYTES - producer->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed the connection with %lld requests unanswered", (long long)run->unanswered);
    producer->have += (size_t)got;
    size_t at = 0;
    while (producer->have - at >= 4) {
        size_t size = (size_t)load_number(producer->received + at, 4);
        if (size > RECEIVE_BYTES - 4) fail("a Produce response of %zu bytes is no answer to one batch", size);
        if (producer->have - at < 4 + size) break;
        int error = read_produce(producer->received + at + 4, size);
        if (error != 0) fail("a Produce request was answered with error %d", error);
        producer->in_flight--;
        run->unanswered--;
        at += 4 + size;
    }
    memmove(producer->received, producer->received + at, producer->have - at);
    producer->have -= at;
}

static void serve_until_answered(struct run *run) {
    struct epoll_event events[GATHER_MAX];
    while (run->unanswered > 0) {
        int ready = epoll_wait(run->epoll, events, GATHER_MAX, 60000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) fail("no answer for a minute; %lld requests are unanswered", (long long)run->unanswered);
        for (int at = 0; at < ready; at++) {
            struct producer *producer = events[at].data.ptr;
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_answers(run, producer);
            send_more(run, producer);
        }
    }
}

void run_produce(const struct options *options) {
    struct writer batch = new_batch(options->batch_records, (size_t)options->record_bytes, wall_ms());
    struct run run = {.options = options, .unsent = options->requests, .unanswered = options->requests};
    run.frames = calloc((size_t)options->partitions, sizeof *run.frames);
    for (int partition = 0; partition < options->partitions; partition++) {
        run.frames[partition] =
            new_produce(options->produce_version, options->acks, options->topic, partition, &batch, NULL);
    }
    run.epoll = epoll_create1(0);
    struct producer *producers = calloc((size_t)options->connections, sizeof *producers);
    for (int at = 0; at < options->connections; at++) {
        producers[at].socket = connect_to(options, 0);
        producers[at].next = at % options->partitions;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &producers[at]};
        if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, producers[at].socket, &event) < 0) fail("epoll: %s", strerror(errno));
    }
    double used = cpu_seconds();
    int64_t start = now_ns();
    for (int at = 0; at < options->connections; at++) send_more(&run, &producers[at]);
    serve_until_answered(&run);
    double seconds = (double)(now_ns() - start) / 1e9;
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f}\n",
        seconds, (long long)options->requests, (long long)options->requests * options->batch_records,
        (long long)options->requests * (long long)batch.size, cpu_seconds() - used);
}

/* Prints the moment, on the monotonic clock, at which the broker first took a record. */
void run_first(const struct options *options) {
    struct writer batch = new_batch(1, (size_t)options->record_bytes, wall_ms());
    struct writer frame = new_produce(options->produce_version, options->acks, options->topic, 0, &batch, NULL);
    const struct timespec pause = {.tv_nsec = 1000000};
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    int socket = -1, tries = 0;
    for (int64_t deadline = now_ns() + (int64_t)options->seconds * 1000000000; now_ns() < deadline; tries++) {
        if (socket < 0) socket = connect_to(options, 1);
        if (socket >= 0) {
            send_all(socket, frame.data, frame.size);
            size_t size = receive_frame(socket, &buffer, &capacity);
            if (size > 0 && read_produce(buffer, size) == 0) {
                printf("{\"at_s\": %.6f, \"tries\": %d}\n", (double)now_ns() / 1e9, tries + 1);
                return;
            }
            if (size == 0) {
                close(socket);
                socket = -1;
            }
        }
        nanosleep(&pause, NULL);
    }
    fail("no record was taken within %d s, after %d tries", options->seconds, tries);
}
