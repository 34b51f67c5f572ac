/* Connections of loads that wait for their answers. */
#include "peer.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_BYTES = 4096, ANSWER_BYTES_MAX = 16 << 20, EVENTS_MAX = 256 };

int new_epoll(void) {
    int made = epoll_create1(0);
    if (made < 0) fail("epoll: %s", strerror(errno));
    return made;
}

void open_peer(const struct options *options, struct peer *peer, int epoll, void *owner) {
    peer->socket = connect_to(options, 0);
    if (peer->received == NULL) {
        peer->capacity = FIRST_BYTES;
        peer->received = malloc(peer->capacity);
        if (peer->received == NULL) fail("no memory for a connection");
    }
    peer->have = peer->taken = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, peer->socket, &event) < 0) fail("epoll: %s", strerror(errno));
}

void close_peer(struct peer *peer) {
    close(peer->socket);
    peer->socket = -1;
}

void send_request(struct peer *peer) {
    store_number(peer->request.data, peer->request.size - 4, 4);
    send_all(peer->socket, peer->request.data, peer->request.size);
    peer->request.size = 0;
}

void receive_more(struct peer *peer) {
    if (peer->taken > 0) {
        memmove(peer->received, peer->received + peer->taken, peer->have - peer->taken);
        peer->have -= peer->taken;
        peer->taken = 0;
    }
    size_t needed = peer->have < 4 ? FIRST_BYTES : 4 + (size_t)load_number(peer->received, 4);
    if (needed > ANSWER_BYTES_MAX) fail("the broker announced a response of %zu bytes", needed);
    if (needed > peer->capacity) {
        peer->capacity = needed;
        peer->received = realloc(peer->received, needed);
        if (peer->received == NULL) fail("no memory for a response of %zu bytes", needed);
    }
    ssize_t got = recv(peer->socket, peer->received + peer->have, peer->capacity - peer->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed the connection that waited for an answer");
    peer->have += (size_t)got;
}

bool take_answer(struct peer *peer, struct reader *in) {
    size_t left = peer->have - peer->taken;
    const uint8_t *frame = peer->received + peer->taken;
    if (left < 4 || left < 4 + (size_t)load_number(frame, 4)) return false;
    size_t size = (size_t)load_number(frame, 4);
    peer->taken += 4 + size;
    *in = (struct reader){frame + 4, frame + 4 + size, false};
    take(in, 4);
    skip_tags(in);
    return true;
}

int wait_peers(int epoll, void **owners, int owners_max, int timeout_ms) {
    struct epoll_event events[EVENTS_MAX];
    int ready = epoll_wait(epoll, events, owners_max < EVENTS_MAX ? owners_max : EVENTS_MAX, timeout_ms);
    if (ready < 0 && errno != EINTR) fail("epoll: %s", strerror(errno));
    for (int at = 0; at < ready; at++) owners[at] = events[at].data.ptr;
    return ready < 0 ? 0 : ready;
}
