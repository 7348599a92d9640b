/* The least that copying costs: batches are received over TCP, checked, rewritten and sent on.
 *
 *     forwarder MB BATCH_BYTES
 *
 * Two other processes write the responses and read the requests. Each response has 1 MB of batches.
 * Prints the CPU of the forwarder alone, in us: in user code and in the kernel. There is no
 * protocol, no offset map, no response to a request, and one connection on each side, so a real
 * copy cannot be cheaper. */

#define _GNU_SOURCE
#include "kernels.c"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESPONSE (1 << 20)
#define REQUEST_HEAD 80
#define TOGETHER 256 /* parts of one system call */

static void stop(const char *what) {
    perror(what);
    exit(1);
}

/* A connection over loopback; the child that `body` runs in has the other end. */
static int connected(void (*body)(int, long, int), long total, int batch) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening, (struct sockaddr *)&address, size) || listen(listening, 1)) stop("bind");
    getsockname(listening, (struct sockaddr *)&address, &size);
    if (!fork()) {
        int end = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(end, (struct sockaddr *)&address, size)) stop("connect");
        body(end, total, batch);
        exit(0);
    }
    int end = accept(listening, NULL, NULL);
    close(listening);
    return end;
}

/* Writes responses of contiguous batches of one record each. */
static void feed(int end, long total, int batch) {
    u8 *data = calloc(1, RESPONSE);
    int count = RESPONSE / batch;
    u64 offset = 0;
    for (long sent = 0; sent < total; sent += (long)count * batch) {
        for (int n = 0; n < count; n++, offset++) {
            u8 *head = data + (long)n * batch;
            put64(head, offset);
            put32(head + 8, (u32)batch - 12);
            head[16] = 2;
            put32(head + 57, 1);
            if (!sent) put32(head + 17, crc32c(head + 21, batch - 21));
        }
        for (long at = 0, got; at < (long)count * batch; at += got)
            if ((got = write(end, data + at, (size_t)((long)count * batch - at))) <= 0) stop("write");
    }
}

static void drain(int end, long total, int batch) {
    u8 *data = malloc(RESPONSE);
    (void)total, (void)batch;
    while (read(end, data, RESPONSE) > 0) continue;
}

static void send_all(int end, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t sent = writev(end, parts, count < TOGETHER ? count : TOGETHER);
        if (sent < 0) stop("writev");
        for (; count > 0 && (size_t)sent >= parts->iov_len; parts++, count--)
            sent -= (ssize_t)parts->iov_len;
        if (count > 0) parts->iov_base = (u8 *)parts->iov_base + sent, parts->iov_len -= (size_t)sent;
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long total = atol(argv[1]) * 1000000, sequence = 0;
    int batch = atoi(argv[2]), count = RESPONSE / batch, size = count * batch;
    twinlog_prepare();
    int source = connected(feed, total, batch), target = connected(drain, total, batch);
    u8 *data = malloc(RESPONSE), request[REQUEST_HEAD] = {0};
    i64 *state = calloc((size_t)(REWRITE_NUMBERS + ROW_NUMBERS * count), sizeof *state);
    struct iovec *parts = calloc((size_t)(2 * count), sizeof *parts);
    struct rusage before, after;
    long copied = 0;
    getrusage(RUSAGE_SELF, &before);
    for (; copied < total; copied += size, sequence += count) {
        for (int at = 0, got; at < size; at += got)
            if ((got = (int)read(source, data + at, (size_t)(size - at))) <= 0) stop("read");
        i64 begin[REWRITE_NUMBERS] = {0, sequence, -1, 0, INT64_MAX, RESPONSE, 0, 0xFF, 9,
                                    sequence & SEQUENCE_MASK};
        memcpy(state, begin, sizeof begin);
        if (twinlog_rewrite(data, size, state, count) != count) return 3;
        for (int n = 0; n < count; n++) {
            i64 *row = state + REWRITE_NUMBERS + n * ROW_NUMBERS;
            parts[2 * n] = (struct iovec){request, REQUEST_HEAD};
            parts[2 * n + 1] = (struct iovec){data + row[ROW_AT], (size_t)row[ROW_LENGTH]};
        }
        send_all(target, parts, 2 * count);
    }
    getrusage(RUSAGE_SELF, &after);
    close(source), close(target);
    while (wait(NULL) > 0) continue;
    printf("%ld %ld %ld\n", copied,
           (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000
               + after.ru_utime.tv_usec - before.ru_utime.tv_usec,
           (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000
               + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    return 0;
}
