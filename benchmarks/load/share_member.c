/* Members of share groups. */
#include "share_member.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "coordinator.h"

enum { PATIENCE_S = 60, PAUSE_MS = 50, BEAT_S = 5, ANSWER_S = 60, LEAVE_EPOCH = -1 };

static void beat(struct share_group *group, struct share_member *member, int epoch) {
    struct writer frame = {0};
    put_share_heartbeat(&frame, group->name, member->id, epoch, group->options->topic);
    end_frame(&frame);
    send_all(group->control, frame.data, frame.size);
    free(frame.data);
    size_t size = receive_frame(group->control, &group->answer, &group->answer_capacity);
    struct reader in = {group->answer, group->answer + size, false};
    take(&in, 4);
    skip_tags(&in);
    struct consumer_answer answer = take_consumer_heartbeat(&in, &member->held);
    if (is_coordinator_starting(answer.error)) return;
    if (answer.error != NO_ERROR) fail("a ShareGroupHeartbeat request was answered with error %d", answer.error);
    member->epoch = answer.epoch;
}

static void beat_all(struct share_group *group) {
    for (int at = 0; at < group->options->members; at++) beat(group, &group->members[at], group->members[at].epoch);
    group->beat_due_ns = now_ns() + BEAT_S * (int64_t)1000000000;
}

static bool is_formed(const struct share_group *group) {
    for (int at = 0; at < group->options->members; at++)
        if (group->members[at].held.count == 0) return false;
    return true;
}

void form_share_group(struct share_group *group, const struct options *options) {
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    *group = (struct share_group){.options = options, .control = connect_to(options, 0)};
    group->members = calloc((size_t)options->members, sizeof *group->members);
    if (group->members == NULL) fail("no memory for %d members", options->members);
    put_name(group->name, sizeof group->name, options, 0);
    await_coordinator(options, GROUP_KEY_TYPE, group->name);
    struct writer config = new_earliest_config(group->name);
    send_until_taken(options, group->control, &config, read_altered_configs, "an IncrementalAlterConfigs request");
    free(config.data);
    for (int at = 0; at < options->members; at++)
        put_name(group->members[at].id, sizeof group->members[at].id, options, 1000 + at);
    int64_t start = now_ns();
    for (beat_all(group); !is_formed(group); beat_all(group)) {
        if (now_ns() - start > PATIENCE_S * (int64_t)1000000000) fail("members without partitions after %d s", PATIENCE_S);
        nanosleep(&pause, NULL);
    }
}

void keep_share_group(struct share_group *group) {
    if (now_ns() >= group->beat_due_ns) beat_all(group);
}

void leave_share_group(struct share_group *group) {
    for (int at = 0; at < group->options->members; at++) beat(group, &group->members[at], LEAVE_EPOCH);
    close(group->control);
}

void open_share_member(struct share_group *group, struct share_member *member, int epoll) {
    open_peer(group->options, &member->peer, epoll, member);
    member->session_epoch = 0;
    member->acquired.count = 0;
}

void send_share_fetch(struct share_group *group, struct share_member *member, int wait_ms) {
    const struct share_fetch fetch = {
        .group = group->name, .member = member->id, .session_epoch = member->session_epoch++, .wait_ms = wait_ms,
        .records_max = group->options->records_max, .held = &member->held, .accepted = &member->acquired,
    };
    put_share_fetch(&member->peer.request, &fetch);
    send_request(&member->peer);
    member->acquired.count = 0;
}

void send_share_acknowledge(
    struct share_group *group, struct share_member *member, const struct acquired_list *accepted) {
    put_share_acknowledge(
        &member->peer.request, group->name, member->id, member->session_epoch++, member->held.topic_id, accepted);
    send_request(&member->peer);
}

int64_t on_share_fetched(struct share_member *member, struct reader *in, int64_t *bytes) {
    int64_t records = 0;
    member->acquired.count = 0;
    int error = take_share_fetch(in, &member->acquired, bytes);
    if (error != NO_ERROR) fail("a ShareFetch request was answered with error %d", error);
    for (int at = 0; at < member->acquired.count; at++)
        records += member->acquired.items[at].last - member->acquired.items[at].first + 1;
    return records;
}

struct reader await_answer(struct peer *peer, int epoll) {
    void *owners[1];
    struct reader in;
    while (!take_answer(peer, &in)) {
        if (wait_peers(epoll, owners, 1, ANSWER_S * 1000) == 0) fail("no answer for %d s", ANSWER_S);
        receive_more(peer);
    }
    return in;
}
