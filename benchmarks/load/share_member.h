/* One member of a share group: joins over a connection that all members share, then fetches over one of its own.
 *
 * A session's requests count on from 0; a new connection begins a new session. */
#ifndef OTTLA_LOAD_SHARE_MEMBER_H
#define OTTLA_LOAD_SHARE_MEMBER_H

#include "peer.h"
#include "share_requests.h"

struct share_member {
    struct peer peer;
    char id[ID_BYTES_MAX];
    int epoch, session_epoch;
    struct held_partitions held;
    struct acquired_list acquired;
};

/* The members of one group, and the connection for their heartbeats. */
struct share_group {
    const struct options *options;
    char name[ID_BYTES_MAX];
    int control;
    uint8_t *answer;
    size_t answer_capacity;
    struct share_member *members;
    int64_t beat_due_ns;
};

/* Has the group start at the oldest record, and waits until every member has partitions. */
void form_share_group(struct share_group *group, const struct options *options);

/* Heartbeats of all members when some seconds have passed since the last ones. */
void keep_share_group(struct share_group *group);
void leave_share_group(struct share_group *group);

/* Opens the member's connection, whose session begins with the next fetch. */
void open_share_member(struct share_group *group, struct share_member *member, int epoll);

/* Sends a ShareFetch that accepts all that the member holds, and forgets it. */
void send_share_fetch(struct share_group *group, struct share_member *member, int wait_ms);

/* Sends a ShareAcknowledge of these records. */
void send_share_acknowledge(
    struct share_group *group, struct share_member *member, const struct acquired_list *accepted);

/* Reads the answer to a fetch; an error ends the program. What came is in member->acquired; returns how many records. */
int64_t on_share_fetched(struct share_member *member, struct reader *in, int64_t *bytes);

/* Waits for the next answer. */
struct reader await_answer(struct peer *peer, int epoll);

#endif
