/* A share group that reads: each member fetches, and accepts what it got with its next request.
 *
 * `share_consume` accepts with the next ShareFetch, as the Java client does when it polls; counted are the records whose
 * acceptance was answered. `share_acknowledge` accepts every record with a ShareAcknowledge of its own and waits for
 * the answer; counted are these requests. The clock starts when every member's session is open. */
#include <stdio.h>

#include "load.h"
#include "share_member.h"

enum { WAIT_MS = 500, OWNERS_MAX = 256, ANSWER_MS = 60000 };

struct run {
    struct share_group group;
    bool each; /* record is accepted by its own request */
    int sessions; /* that are open */
    int64_t accepted, requests, bytes;
};

/* What a member waits for. */
struct turn {
    int64_t offered; /* records that its request accepts */
    bool is_acknowledging;
    struct acquired_list one;
    int range;       /* of the acquired ones that the next acceptance is from */
    int64_t next;
    bool is_open;
};

static void fetch(struct run *run, struct share_member *member, struct turn *turn, int64_t held) {
    turn->offered = held;
    turn->is_acknowledging = false;
    send_share_fetch(&run->group, member, WAIT_MS);
}

/* Accepts the next record of those acquired; false if there is none left. */
static bool accept_next(struct run *run, struct share_member *member, struct turn *turn) {
    if (turn->range < member->acquired.count && turn->next > member->acquired.items[turn->range].last) {
        turn->range++;
        if (turn->range < member->acquired.count) turn->next = member->acquired.items[turn->range].first;
    }
    if (turn->range >= member->acquired.count) return false;
    struct acquired item = member->acquired.items[turn->range];
    item.first = item.last = turn->next++;
    turn->one.count = 0;
    if (!add_acquired(&turn->one, item)) fail("no memory for an acknowledgement");
    turn->offered = 1;
    turn->is_acknowledging = true;
    send_share_acknowledge(&run->group, member, &turn->one);
    return true;
}

static void on_answer(struct run *run, struct share_member *member, struct turn *turn, struct reader *in) {
    run->requests++;
    run->accepted += turn->offered;
    turn->offered = 0;
    if (turn->is_acknowledging) {
        int error = take_share_acknowledge(in);
        if (error != NO_ERROR) fail("a ShareAcknowledge request was answered with error %d", error);
        if (accept_next(run, member, turn)) return;
        member->acquired.count = 0;
        fetch(run, member, turn, 0);
        return;
    }
    int64_t held = on_share_fetched(member, in, &run->bytes);
    if (!turn->is_open) run->sessions++;
    turn->is_open = true;
    if (run->each && held > 0) {
        turn->range = 0;
        turn->next = member->acquired.items[0].first;
        accept_next(run, member, turn);
    } else {
        fetch(run, member, turn, held);
    }
}

static void run_share(const struct options *options, bool each) {
    struct run run = {.each = each};
    void *owners[OWNERS_MAX];
    form_share_group(&run.group, options);
    struct turn *turns = calloc((size_t)options->members, sizeof *turns);
    if (turns == NULL) fail("no memory for %d members", options->members);
    int epoll = new_epoll();
    for (int at = 0; at < options->members; at++) {
        open_share_member(&run.group, &run.group.members[at], epoll);
        fetch(&run, &run.group.members[at], &turns[at], 0);
    }
    int64_t start = 0, wanted = each ? options->requests : options->bytes / options->record_bytes;
    double used = 0;
    while (start == 0 || run.accepted < wanted) {
        int ready = wait_peers(epoll, owners, OWNERS_MAX, ANSWER_MS);
        if (ready == 0) fail("no answer to a member of the group for a minute");
        for (int at = 0; at < ready; at++) {
            struct share_member *member = owners[at];
            struct reader in;
            receive_more(&member->peer);
            while (take_answer(&member->peer, &in))
                on_answer(&run, member, &turns[member - run.group.members], &in);
        }
        if (start == 0 && run.sessions == options->members) {
            start = now_ns();
            used = cpu_seconds();
            run.accepted = run.requests = run.bytes = 0;
        }
        keep_share_group(&run.group);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    used = cpu_seconds() - used;
    for (int at = 0; at < options->members; at++) close_peer(&run.group.members[at].peer);
    leave_share_group(&run.group);
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f}\n",
        seconds, (long long)run.requests, (long long)run.accepted,
        (long long)run.accepted * options->record_bytes, used);
}

void run_share_consume(const struct options *options) { run_share(options, false); }

void run_share_acknowledge(const struct options *options) { run_share(options, true); }
