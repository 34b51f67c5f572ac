/* Waiting until a broker coordinates. */
#include "coordinator.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "group_requests.h"

enum { PATIENCE_S = 30 };

static void pause_ms(int milliseconds) {
    const struct timespec pause = {.tv_nsec = (long)milliseconds * 1000000};
    nanosleep(&pause, NULL);
}

static int read_coordinator(const uint8_t *frame, size_t size) {
    struct reader in = {frame, frame + size, false};
    take(&in, 4);
    skip_tags(&in);
    return take_find_coordinator(&in);
}

void send_until_taken(const struct options *options, int socket, const struct writer *frame,
    int (*read_error)(const uint8_t *answer, size_t size), const char *what) {
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    int error = UNREADABLE;
    for (int64_t deadline = now_ns() + PATIENCE_S * (int64_t)1000000000; now_ns() < deadline; pause_ms(10)) {
        send_all(socket, frame->data, frame->size);
        size_t size = receive_frame(socket, &buffer, &capacity);
        if (size == 0) fail("%s: the broker at port %d closed the connection", what, options->port);
        error = read_error(buffer, size);
        if (!is_coordinator_starting(error)) break;
    }
    free(buffer);
    if (error != NO_ERROR) fail("%s was answered with error %d", what, error);
}

void await_coordinator(const struct options *options, int key_type, const char *key) {
    struct writer frame = {0};
    put_find_coordinator(&frame, key_type, key);
    end_frame(&frame);
    int socket = connect_to(options, 0);
    send_until_taken(options, socket, &frame, read_coordinator, "a FindCoordinator request");
    close(socket);
    free(frame.data);
}

void put_name(char *to, size_t capacity, const struct options *options, int number) {
    if (snprintf(to, capacity, "%s-%d", options->name, number) >= (int)capacity) fail("name=%s is too long", options->name);
}
