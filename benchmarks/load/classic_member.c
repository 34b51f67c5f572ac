/* A member of a classic group. */
#include "classic_member.h"

void join(struct classic_member *member) {
    put_join(&member->peer.request, member->group, member->id, member->subscription);
    member->step = JOINING;
    member->generation_size = 0;
    send_request(&member->peer);
}

void beat(struct classic_member *member) {
    put_heartbeat(&member->peer.request, member->group, member->generation, member->id);
    member->step = BEATING;
    send_request(&member->peer);
}

void leave(struct classic_member *member) {
    put_leave(&member->peer.request, member->group, member->id);
    member->step = LEAVING;
    send_request(&member->peer);
}

static void on_joined(struct classic_member *member, struct reader *in) {
    struct joined joined = take_joined(in);
    if (joined.error == MEMBER_ID_REQUIRED) {
        memcpy(member->id, joined.member, sizeof member->id);
        join(member);
    } else if (joined.error == UNKNOWN_MEMBER) {
        member->id[0] = 0;
        join(member);
    } else if (is_coordinator_starting(joined.error)) {
        join(member);
    } else if (joined.error == NO_ERROR) {
        memcpy(member->id, joined.member, sizeof member->id);
        member->generation = joined.generation;
        member->generation_size = joined.is_leader ? (int)joined.member_count : 0;
        put_sync(&member->peer.request, member->group, &joined, member->topic);
        member->step = SYNCING;
        send_request(&member->peer);
    } else {
        fail("a JoinGroup request was answered with error %d", joined.error);
    }
}

/* To an error of SyncGroup or Heartbeat the answer is to join again, unless it is one that a healthy group lacks. */
static void on_told(struct classic_member *member, int error, const char *what) {
    if (error == NO_ERROR) {
        member->step = SETTLED;
        return;
    }
    if (error == UNKNOWN_MEMBER) member->id[0] = 0;
    else if (error != REBALANCE_IN_PROGRESS && error != ILLEGAL_GENERATION) fail("%s was answered with error %d", what, error);
    join(member);
}

void on_answers(struct classic_member *member) {
    struct reader in;
    receive_more(&member->peer);
    while (take_answer(&member->peer, &in)) {
        int error;
        switch (member->step) {
            case JOINING:
                on_joined(member, &in);
                break;
            case SYNCING:
                on_told(member, take_synced(&in), "a SyncGroup request");
                break;
            case BEATING:
                on_told(member, take_error(&in), "a Heartbeat request");
                break;
            case LEAVING:
                error = take_error(&in);
                if (error != NO_ERROR) fail("a LeaveGroup request was answered with error %d", error);
                member->step = OUTSIDE;
                member->id[0] = 0;
                break;
            default:
                fail("an answer that nobody asked for");
        }
    }
}
