/* A member of a classic group as a small machine: join, sync, and heartbeats when its owner says so.
 *
 * The owner waits for answers with epoll and hands them over; it never blocks on one member.
 */
#ifndef OTTLA_LOAD_CLASSIC_MEMBER_H
#define OTTLA_LOAD_CLASSIC_MEMBER_H

#include "group_requests.h"
#include "peer.h"

enum classic_step { OUTSIDE, JOINING, SYNCING, SETTLED, BEATING, LEAVING };

struct classic_member {
    struct peer peer;
    enum classic_step step;
    const char *group;
    char id[ID_BYTES_MAX];
    int generation;
    int generation_size; /* how many members its leader saw; 0 if this is not the leader */
    int64_t due_ns;      /* the next heartbeat, when it is settled */
    const char *topic;
    const struct writer *subscription;
};

void join(struct classic_member *member);
void beat(struct classic_member *member);
void leave(struct classic_member *member);

/* Takes what has come, and goes on by it: a member that is told to rebalance joins again at once. An error that a
 * healthy group does not give ends the program. */
void on_answers(struct classic_member *member);

#endif
