/* One connection of a load that waits for its answers: whole frames out, whole frames in, never blocking to read.
 *
 * For loads whose next request depends on the last answer; prepared frames that do not are pipeline.h's.
 */
#ifndef OTTLA_LOAD_PEER_H
#define OTTLA_LOAD_PEER_H

#include "load.h"
#include "wire.h"

struct peer {
    int socket;
    uint8_t *received;
    size_t capacity, have, taken;
    struct writer request; /* its memory is used again and again */
};

/* Connects, and has `epoll` report `owner` when something has come. */
void open_peer(const struct options *options, struct peer *peer, int epoll, void *owner);
void close_peer(struct peer *peer);

/* Sends the peer's request, which put_header began, and forgets it. */
void send_request(struct peer *peer);

/* Receives what has come, once. */
void receive_more(struct peer *peer);

/* The next whole answer, behind its correlation id and the tags of its header; false if there is none yet. */
bool take_answer(struct peer *peer, struct reader *in);

/* Waits at most `timeout_ms` for data; returns the number of owners that have some. */
int wait_peers(int epoll, void **owners, int owners_max, int timeout_ms);

int new_epoll(void);

#endif
