/* A broker in name only: takes Produce frames and answers each with success, without looking into it. What it received
 * is appended to the file `name=` with one write for each receive, unless that is empty. The least that any broker does,
 * and so the rate that a broker's own is compared with. One thread serves all connections, until it is killed. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"
#include "requests.h"

enum { RECEIVE_BYTES = 1 << 20, EVENTS_MAX = 64 };

struct peer {
    int socket;
    uint8_t head[12]; /* length, API key, version, correlation id */
    size_t head_have;
    uint64_t body_left; /* bytes of the frame that are still to come */
};

static int listen_at(const struct options *options) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1) fail("host=%s is not an IPv4 address", options->host);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (made < 0 || bind(made, (struct sockaddr *)&address, sizeof address) < 0 || listen(made, 64) < 0)
        fail("cannot listen on port %d: %s", options->port, strerror(errno));
    return made;
}

static void put_answer(struct writer *out, const uint8_t *correlation) {
    size_t start = out->size;
    put_number(out, 0, 4); /* frame length: set below */
    put_bytes(out, correlation, 4);
    put_no_tags(out);
    put_unsigned_varint(out, 2);
    put_compact_string(out, "load");
    put_unsigned_varint(out, 2);
    put_number(out, 0, 4);  /* partition */
    put_number(out, 0, 2);  /* no error */
    put_number(out, 0, 8);  /* base offset */
    put_number(out, -1, 8); /* append time */
    put_number(out, 0, 8);  /* log start offset */
    put_unsigned_varint(out, 1); /* record errors */
    put_unsigned_varint(out, 0); /* error message */
    put_no_tags(out);
    put_no_tags(out);
    put_number(out, 0, 4); /* throttle time */
    put_no_tags(out);
    store_number(out->data + start, out->size - start - 4, 4);
}

/* Follows the frames through what arrived; every frame that ends here gets its answer. */
static void take_frames(struct peer *peer, const uint8_t *at, size_t size, struct writer *answers) {
    while (size > 0) {
        if (peer->head_have < sizeof peer->head) {
            size_t some = sizeof peer->head - peer->head_have;
            if (some > size) some = size;
            memcpy(peer->head + peer->head_have, at, some);
            peer->head_have += some, at += some, size -= some;
            if (peer->head_have < sizeof peer->head) return;
            peer->body_left = (uint64_t)load_number(peer->head, 4) + 4 - sizeof peer->head;
        }
        size_t some = peer->body_left < size ? (size_t)peer->body_left : size;
        peer->body_left -= some, at += some, size -= some;
        if (peer->body_left == 0) {
            put_answer(answers, peer->head + 8);
            peer->head_have = 0;
        }
    }
}

void run_sink(const struct options *options) {
    static uint8_t received[RECEIVE_BYTES];
    struct epoll_event events[EVENTS_MAX], event = {.events = EPOLLIN};
    struct writer answers = {0};
    int listener = listen_at(options), epoll = epoll_create1(0), file = -1, on = 1;
    if (options->name[0] != '\0' && (file = open(options->name, O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0)
        fail("cannot write %s: %s", options->name, strerror(errno));
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0) fail("epoll: %s", strerror(errno));
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int at = 0; at < ready; at++) {
            struct peer *peer = events[at].data.ptr;
            if (peer == NULL) {
                peer = calloc(1, sizeof *peer);
                if (peer == NULL || (peer->socket = accept(listener, NULL, NULL)) < 0) fail("accept: %s", strerror(errno));
                setsockopt(peer->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                event.data.ptr = peer;
                if (epoll_ctl(epoll, EPOLL_CTL_ADD, peer->socket, &event) < 0) fail("epoll: %s", strerror(errno));
                continue;
            }
            ssize_t got = recv(peer->socket, received, RECEIVE_BYTES, 0);
            if (got <= 0) {
                close(peer->socket);
                free(peer);
                continue;
            }
            if (file >= 0 && write(file, received, (size_t)got) != got) fail("cannot write: %s", strerror(errno));
            answers.size = 0;
            take_frames(peer, received, (size_t)got, &answers);
            if (answers.size > 0) send_all(peer->socket, answers.data, answers.size);
        }
    }
}
