/* A long link on one machine: passes connections on to one port, with a delay each way and a rate
 * that all connections share, in each direction.
 *
 *     link LISTEN_PORT TO_PORT DELAY_MS MBIT WINDOW_KB
 *
 * MBIT 0 does not limit the rate. WINDOW_KB limits the bytes of one connection that were sent and
 * not yet acknowledged, one round trip after they entered an idle link, as the socket buffers of a
 * broker do; 0 does not limit them. Slow start, loss and headers of TCP are not imitated.
 *
 * A byte enters the link when it is read, waits for its turn (at most QUEUE_NS, so that connections
 * share the rate), and is written DELAY_MS after its turn has ended.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, MOST = 512, HELD_AT_MOST = 64 * 1024 * 1024 };
#define QUEUE_NS 4000000LL

typedef struct chunk {
    struct chunk *next;
    int64_t due;
    int length, done;
    char data[];
} chunk;

typedef struct {
    chunk *first, *last;
} queue;

typedef struct {
    int from, to;
    queue waiting, unacknowledged;
    int64_t held; /* bytes in both queues */
    int read_slot, write_slot;
    int ended, is_blocked;
} way;

static int64_t delay_ns, window_bytes, free_at[2];
static double ns_per_byte;
static way ways[MOST][2];
static int count;

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void append(queue *to, chunk *one) {
    one->next = NULL;
    if (to->last) to->last->next = one;
    else to->first = one;
    to->last = one;
}

static chunk *pop(queue *from) {
    chunk *one = from->first;
    from->first = one->next;
    if (!from->first) from->last = NULL;
    return one;
}

static void end_connection(int at) {
    close(ways[at][0].from);
    close(ways[at][1].from);
    for (int side = 0; side < 2; side++) {
        while (ways[at][side].waiting.first) free(pop(&ways[at][side].waiting));
        while (ways[at][side].unacknowledged.first) free(pop(&ways[at][side].unacknowledged));
    }
    if (at != --count) memcpy(ways[at], ways[count], sizeof ways[at]);
}

static int may_read(const way *one, int side, int64_t now) {
    return !one->ended && free_at[side] - now < QUEUE_NS && one->held < window_bytes;
}

/* Returns -1 if the connection broke. */
static int take(way *one, int side, int64_t now) {
    int64_t room = window_bytes - one->held;
    int size = room < CHUNK ? (int)room : CHUNK;
    chunk *got = malloc(sizeof *got + size);
    int length = (int)recv(one->from, got->data, size, MSG_DONTWAIT);
    if (length <= 0) {
        free(got);
        if (length < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
        one->ended = 1;
        length = 0;
        got = malloc(sizeof *got);
    } else if (length < size / 2) {
        got = realloc(got, sizeof *got + length);
    }
    if (free_at[side] < now) free_at[side] = now;
    free_at[side] += (int64_t)(length * ns_per_byte);
    got->due = free_at[side] + delay_ns;
    got->length = length;
    got->done = 0;
    one->held += length;
    append(&one->waiting, got);
    return 0;
}

static int pass_on(way *one, int64_t now) {
    while (one->unacknowledged.first && one->unacknowledged.first->due <= now) {
        chunk *done = pop(&one->unacknowledged);
        one->held -= done->length;
        free(done);
    }
    one->is_blocked = 0;
    while (one->waiting.first && one->waiting.first->due <= now) {
        chunk *next = one->waiting.first;
        if (!next->length) {
            shutdown(one->to, SHUT_WR);
        } else {
            ssize_t sent = send(one->to, next->data + next->done, next->length - next->done,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) return -1;
            if (sent > 0) next->done += (int)sent;
            if (next->done < next->length) {
                one->is_blocked = 1;
                return 0;
            }
        }
        pop(&one->waiting);
        next = realloc(next, sizeof *next);
        next->due = now + delay_ns;
        append(&one->unacknowledged, next);
    }
    return 0;
}

static int prepared(int sock) {
    int on = 1;
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(sock, F_SETFL, fcntl(sock, F_GETFL) | O_NONBLOCK);
    return sock;
}

static void accept_one(int listener, int to_port) {
    int near = accept(listener, NULL, NULL);
    if (near < 0) return;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(to_port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int far = socket(AF_INET, SOCK_STREAM, 0);
    if (count == MOST || connect(far, (struct sockaddr *)&to, sizeof to)) {
        close(near);
        close(far);
        return;
    }
    memset(ways[count], 0, sizeof ways[count]);
    ways[count][0].from = ways[count][1].to = prepared(near);
    ways[count][0].to = ways[count][1].from = prepared(far);
    count++;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    int to_port = atoi(argv[2]);
    double mbit = atof(argv[4]);
    delay_ns = (int64_t)(atof(argv[3]) * 1e6);
    ns_per_byte = mbit > 0 ? 8000.0 / mbit : 0;
    window_bytes = atoll(argv[5]) * 1024;
    if (!window_bytes) window_bytes = HELD_AT_MOST;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1000);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 64)) {
        perror("link");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    static struct pollfd polled[2 * MOST + 1];
    for (int turn = 0;; turn++) {
        int64_t now = now_ns(), next = now + 1000000000LL;
        int slots = 1;
        polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int at = 0; at < count; at++) {
            polled[slots] = (struct pollfd){.fd = ways[at][0].from};
            polled[slots + 1] = (struct pollfd){.fd = ways[at][1].from};
            for (int side = 0; side < 2; side++) {
                way *one = &ways[at][side];
                if (may_read(one, side, now)) polled[slots + side].events |= POLLIN;
                else if (!one->ended && one->held < window_bytes && next > free_at[side] - QUEUE_NS)
                    next = free_at[side] - QUEUE_NS;
                if (one->is_blocked) polled[slots + 1 - side].events |= POLLOUT;
                else if (one->waiting.first && next > one->waiting.first->due)
                    next = one->waiting.first->due;
                if (one->unacknowledged.first && one->held >= window_bytes &&
                    next > one->unacknowledged.first->due)
                    next = one->unacknowledged.first->due;
            }
            slots += 2;
        }
        int64_t wait = next > now ? next - now : 0;
        struct timespec within = {wait / 1000000000LL, wait % 1000000000LL};
        if (ppoll(polled, slots, &within, NULL) < 0 && errno != EINTR) return 1;
        now = now_ns();
        int known = count, broken[MOST], broke = 0;
        for (int each = 0; each < known; each++) {
            int at = (each + turn) % known, failed = 0; /* in turns, so that all get their share */
            for (int side = 0; side < 2; side++) {
                way *one = &ways[at][side];
                short seen = polled[1 + 2 * at + side].revents;
                if (seen & (POLLIN | POLLHUP | POLLERR) && may_read(one, side, now))
                    failed |= take(one, side, now);
                failed |= pass_on(one, now);
            }
            int both_ended = ways[at][0].ended && ways[at][1].ended;
            if (failed || (both_ended && !ways[at][0].waiting.first && !ways[at][1].waiting.first))
                broken[broke++] = at;
        }
        if (polled[0].revents) accept_one(listener, to_port);
        for (int at = known - 1; at >= 0; at--)
            for (int each = 0; each < broke; each++)
                if (broken[each] == at) end_connection(at);
    }
}
