/* Keeps many requests in flight, in a loop of its own around poll(2): writes numbered blocks all over a volume, makes
 * them durable, and reads them again. async TARGET [PASSPHRASE]; `ram:8M` needs no passphrase. */

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cryptline.h>

enum { DEPTH = 16, BLOCK = 4096, BLOCKS = 256 };

static unsigned char buffers[BLOCKS][BLOCK];

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, cryptline_last_error());
    return -1;
}

/* Waits for the queue's descriptor, as a program with other things to wait for would, and collects what has ended. */
static int collect(cryptline_queue *queue, int *in_flight)
{
    struct cryptline_completion done[DEPTH];
    struct pollfd entry = { .fd = cryptline_queue_fd(queue), .events = POLLIN };
    if (entry.fd < 0 || poll(&entry, 1, -1) < 0)
        return failed("poll");
    int count = cryptline_queue_poll(queue, done, DEPTH, 0);
    if (count < 0)
        return failed("collect");
    for (int i = 0; i < count; i++) {
        if (done[i].result < 0) {
            fprintf(stderr, "request %llu: %s\n", (unsigned long long)done[i].token, strerror(-done[i].result));
            return -1;
        }
        *in_flight -= 1;
    }
    return 0;
}

/* Writes or reads all blocks. */
static int transfer(cryptline_queue *queue, uint64_t stride, int is_write)
{
    int next = 0, in_flight = 0;
    while (next < BLOCKS || in_flight > 0) {
        while (next < BLOCKS && in_flight < DEPTH) {
            uint64_t offset = (uint64_t)next * stride;
            int result = is_write
                ? cryptline_queue_write(queue, buffers[next], BLOCK, offset, 0, (uint64_t)next)
                : cryptline_queue_read(queue, buffers[next], BLOCK, offset, (uint64_t)next);
            if (result < 0)
                return failed("submit");
            next++;
            in_flight++;
        }
        if (collect(queue, &in_flight) < 0)
            return -1;
    }
    return 0;
}

static int flush(cryptline_queue *queue)
{
    int in_flight = 1;
    if (cryptline_queue_flush(queue, 0) < 0)
        return failed("flush");
    while (in_flight > 0)
        if (collect(queue, &in_flight) < 0)
            return -1;
    return 0;
}

static int run(cryptline_volume *volume, cryptline_queue *queue)
{
    uint64_t size;
    if (cryptline_size(volume, &size) < 0)
        return failed("size");
    uint64_t stride = size / BLOCKS / BLOCK * BLOCK;
    for (int i = 0; i < BLOCKS; i++)
        memset(buffers[i], i, BLOCK);
    if (transfer(queue, stride, 1) < 0 || flush(queue) < 0)
        return -1;
    memset(buffers, 0xee, sizeof buffers);
    if (transfer(queue, stride, 0) < 0)
        return -1;
    for (int i = 0; i < BLOCKS; i++)
        for (int at = 0; at < BLOCK; at++)
            if (buffers[i][at] != (unsigned char)i) {
                fprintf(stderr, "block %d is another one\n", i);
                return -1;
            }
    printf("%d blocks written, flushed and read\n", BLOCKS);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: async TARGET [PASSPHRASE]\n");
        return 2;
    }
    struct cryptline_open_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    if (argc == 3) {
        options.passphrase.data = argv[2];
        options.passphrase.len = strlen(argv[2]);
    }

    cryptline_volume *volume = NULL;
    cryptline_queue *queue = NULL;
    int result = -1;
    if (cryptline_open(&volume, argv[1], &options) < 0)
        failed("open");
    else if (cryptline_queue_open(&queue, volume, DEPTH) < 0)
        failed("queue");
    else
        result = run(volume, queue);
    if (queue != NULL)
        cryptline_queue_close(queue);
    if (volume != NULL)
        cryptline_close(volume);
    return result < 0 ? 1 : 0;
}
