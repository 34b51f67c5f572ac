/* OffsetCommit requests, pipelined, in turn over the groups; each commits for all partitions of the topic. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator.h"
#include "group_requests.h"
#include "load.h"
#include "pipeline.h"

void run_commit(const struct options *options) {
    struct writer *frames = calloc((size_t)options->groups, sizeof *frames);
    if (frames == NULL) fail("no memory for %d frames", options->groups);
    char group[ID_BYTES_MAX];
    int socket = connect_to(options, 0);
    for (int at = 0; at < options->groups; at++) {
        put_name(group, sizeof group, options, at);
        if (at == 0) await_coordinator(options, GROUP_KEY_TYPE, group);
        frames[at] = new_commit(group, options->topic, options->partitions);
        send_until_taken(options, socket, &frames[at], read_commit, "a first OffsetCommit request");
    }
    close(socket);
    struct pipelined done = run_pipeline(options, frames, options->groups, read_commit, "an OffsetCommit request");
    printf("{\"seconds\": %.6f, \"requests\": %lld, \"records\": %lld, \"bytes\": %lld, \"client_cpu_s\": %.6f}\n",
        done.seconds, (long long)options->requests, (long long)options->requests * options->partitions,
        (long long)options->requests * (long long)frames[0].size, done.client_cpu_s);
}
