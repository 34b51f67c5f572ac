/* Prepared frames, pipelined. One thread serves all connections. */
#include "pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { GATHER_MAX = 64, RECEIVE_BYTES = 1 << 16 };

struct connection {
    int socket;
    bool waits_to_write;
    int in_flight, next;  /* next: the frame that is sent next */
    size_t sent_of_next;  /* bytes of that frame that have left */
    uint8_t received[RECEIVE_BYTES];
    size_t have;
};

struct run {
    const struct options *options;
    struct writer *frames;
    int frame_count;
    int (*read_error)(const uint8_t *answer, size_t size);
    const char *what;
    int64_t unsent, unanswered;
    int epoll;
};

static void watch(struct run *run, struct connection *connection, bool write) {
    struct epoll_event event = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = connection};
    if (epoll_ctl(run->epoll, EPOLL_CTL_MOD, connection->socket, &event) < 0) fail("epoll: %s", strerror(errno));
    connection->waits_to_write = write;
}

/* Counts the frames that a write of so many bytes finished. */
static void account(struct run *run, struct connection *connection, size_t sent) {
    while (sent > 0) {
        size_t left = run->frames[connection->next].size - connection->sent_of_next;
        if (sent < left) {
            connection->sent_of_next += sent;
            return;
        }
        sent -= left;
        connection->sent_of_next = 0;
        connection->next = (connection->next + 1) % run->frame_count;
    }
}

/* Sends while the limit of requests in flight and the socket allow. A request counts as in flight from its first byte. */
static void send_more(struct run *run, struct connection *connection) {
    for (;;) {
        struct iovec pieces[GATHER_MAX];
        int count = 0, frame = connection->next;
        bool partial = connection->sent_of_next > 0;
        int64_t may = run->options->in_flight - connection->in_flight;
        if (may > run->unsent) may = run->unsent;
        if (partial) may++; /* the frame that is half out is counted already */
        size_t wanted = 0;
        for (; count < may && count < GATHER_MAX; count++, frame = (frame + 1) % run->frame_count) {
            size_t skip = count == 0 ? connection->sent_of_next : 0;
            pieces[count] = (struct iovec){run->frames[frame].data + skip, run->frames[frame].size - skip};
            wanted += pieces[count].iov_len;
        }
        if (count == 0) {
            if (connection->waits_to_write) watch(run, connection, false);
            return;
        }
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(connection->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) sent = 0;
        if (sent < 0) fail("the broker closed the connection: %s", strerror(errno));
        int begun = 0;
        for (size_t covered = 0; begun < count && covered < (size_t)sent; begun++) covered += pieces[begun].iov_len;
        if (partial && begun > 0) begun--;
        connection->in_flight += begun;
        run->unsent -= begun;
        account(run, connection, (size_t)sent);
        if ((size_t)sent < wanted) {
            if (!connection->waits_to_write) watch(run, connection, true);
            return;
        }
    }
}

static void receive_answers(struct run *run, struct connection *connection) {
    ssize_t got = recv(connection->socket, connection->received + connection->have, RECEIVE_BYTES - connection->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed the connection with %lld requests unanswered", (long long)run->unanswered);
    connection->have += (size_t)got;
    size_t at = 0;
    while (connection->have - at >= 4) {
        size_t size = (size_t)load_number(connection->received + at, 4);
        if (size > RECEIVE_BYTES - 4) fail("a response of %zu bytes is no answer to %s", size, run->what);
        if (connection->have - at < 4 + size) break;
        int error = run->read_error(connection->received + at + 4, size);
        if (error != 0) fail("%s was answered with error %d", run->what, error);
        connection->in_flight--;
        run->unanswered--;
        at += 4 + size;
    }
    memmove(connection->received, connection->received + at, connection->have - at);
    connection->have -= at;
}

static void serve_until_answered(struct run *run) {
    struct epoll_event events[GATHER_MAX];
    while (run->unanswered > 0) {
        int ready = epoll_wait(run->epoll, events, GATHER_MAX, 60000);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) fail("no answer for a minute; %lld requests are unanswered", (long long)run->unanswered);
        for (int at = 0; at < ready; at++) {
            struct connection *connection = events[at].data.ptr;
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive_answers(run, connection);
            send_more(run, connection);
        }
    }
}

struct pipelined run_pipeline(const struct options *options, struct writer *frames, int frame_count,
    int (*read_error)(const uint8_t *answer, size_t size), const char *what) {
    struct run run = {
        .options = options, .frames = frames, .frame_count = frame_count, .read_error = read_error, .what = what,
        .unsent = options->requests, .unanswered = options->requests, .epoll = epoll_create1(0),
    };
    struct connection *connections = calloc((size_t)options->connections, sizeof *connections);
    if (connections == NULL) fail("no memory for %d connections", options->connections);
    for (int at = 0; at < options->connections; at++) {
        connections[at].socket = connect_to(options, 0);
        connections[at].next = at % frame_count;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[at]};
        if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, connections[at].socket, &event) < 0) fail("epoll: %s", strerror(errno));
    }
    double used = cpu_seconds();
    int64_t start = now_ns();
    for (int at = 0; at < options->connections; at++) send_more(&run, &connections[at]);
    serve_until_answered(&run);
    struct pipelined done = {
        .seconds = (double)(now_ns() - start) / 1e9, .client_cpu_s = cpu_seconds() - used,
    };
    for (int at = 0; at < options->connections; at++) close(connections[at].socket);
    close(run.epoll);
    free(connections);
    return done;
}
