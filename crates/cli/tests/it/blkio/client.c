/*
 * A program that uses a vhost-user disk by libblkio: writes all of it, reads it again, zeroes, discards and flushes.
 * What the disk holds at its end goes to a file, for somebody else to compare.
 *
 *   client SOCKET SIZE FILE
 *
 * Requests have all lengths, several buffers each, and many are in flight in two queues at once.
 */
#include <blkio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUES = 2, DEPTH = 16, SECTOR = 512, ROOM = 192 * 1024, PIECES = 3 };

static struct blkio *disk;
static struct blkio_mem_region window; /* A place of ROOM bytes for each request of each queue. */
static unsigned char *expected;        /* What the disk holds. */
static unsigned long long seed = 1;

static void must(int ret, const char *what)
{
    if (ret < 0) {
        fprintf(stderr, "%s: %s\n", what, blkio_get_error_msg());
        exit(1);
    }
}

/* xorshift64* */
static unsigned long long random_number(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 0x2545f4914f6cdd1dULL;
}

static unsigned char *place(size_t queue, size_t slot)
{
    return (unsigned char *)window.addr + (queue * DEPTH + slot) * ROOM;
}

/* What the next request of a queue that ends returns. */
static int wait_for_any(size_t queue)
{
    struct blkio_completion ended;
    struct timespec patience = {.tv_sec = 60};
    int got = blkioq_do_io(blkio_get_queue(disk, (int)queue), &ended, 1, 1, &patience);
    must(got, "no answer");
    return ended.ret;
}

static void wait_for_good(size_t queue, int count, const char *what)
{
    while (count-- > 0)
        must(wait_for_any(queue), what);
}

/* The next piece from `at` on: whole sectors, but in buffers that end anywhere. */
static size_t cut(size_t at, size_t size, unsigned char *from, struct iovec pieces[PIECES])
{
    size_t len = (1 + random_number() % (ROOM / SECTOR)) * SECTOR;
    if (len > size - at)
        len = size - at;
    size_t first = random_number() % (len - 2) + 1, second = random_number() % (len - first);
    pieces[0] = (struct iovec){from, first};
    pieces[1] = (struct iovec){from + first, second};
    pieces[2] = (struct iovec){from + first + second, len - first - second};
    return len;
}

/* Writes all of the disk, or reads and compares it: batches in flight in all queues at once. */
static void move_all(size_t size, int write)
{
    size_t at = 0, starts[QUEUES][DEPTH], lengths[QUEUES][DEPTH];
    static struct iovec pieces[QUEUES][DEPTH][PIECES];
    while (at < size) {
        int counts[QUEUES] = {0};
        for (size_t slot = 0; slot < DEPTH; slot++) {
            for (size_t queue = 0; queue < QUEUES && at < size; queue++) {
                unsigned char *memory = place(queue, slot);
                size_t len = cut(at, size, memory, pieces[queue][slot]);
                struct blkioq *to = blkio_get_queue(disk, (int)queue);
                if (write) {
                    for (size_t byte = 0; byte < len; byte++)
                        expected[at + byte] = (unsigned char)(random_number() >> 56);
                    memcpy(memory, expected + at, len);
                    blkioq_writev(to, at, pieces[queue][slot], PIECES, NULL, 0);
                } else {
                    memset(memory, 0xee, len);
                    blkioq_readv(to, at, pieces[queue][slot], PIECES, NULL, 0);
                }
                starts[queue][slot] = at;
                lengths[queue][slot] = len;
                counts[queue]++;
                at += len;
            }
        }
        for (size_t queue = 0; queue < QUEUES; queue++) {
            wait_for_good(queue, counts[queue], write ? "a write failed" : "a read failed");
            for (int slot = 0; !write && slot < counts[queue]; slot++) {
                size_t start = starts[queue][slot];
                if (memcmp(place(queue, slot), expected + start, lengths[queue][slot])) {
                    fprintf(stderr, "other bytes from %zu on\n", start);
                    exit(1);
                }
            }
        }
    }
}

static void connect_to(const char *socket, unsigned long long size)
{
    uint64_t capacity;
    must(blkio_create("virtio-blk-vhost-user", &disk), "create");
    must(blkio_set_str(disk, "path", socket), "path");
    must(blkio_connect(disk), "connect");
    must(blkio_get_uint64(disk, "capacity", &capacity), "capacity");
    if (capacity != size) {
        fprintf(stderr, "the disk has %llu bytes\n", (unsigned long long)capacity);
        exit(1);
    }
    must(blkio_set_int(disk, "num-queues", QUEUES), "num-queues");
    must(blkio_start(disk), "start");
    must(blkio_alloc_mem_region(disk, &window, (size_t)QUEUES * DEPTH * ROOM), "memory");
    must(blkio_map_mem_region(disk, &window), "mapped memory");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t size = strtoull(argv[2], NULL, 10);
    expected = malloc(size);
    connect_to(argv[1], size);
    struct blkioq *first = blkio_get_queue(disk, 0), *second = blkio_get_queue(disk, 1);

    move_all(size, 1);
    move_all(size, 0);
    blkioq_write_zeroes(first, SECTOR, 3 * SECTOR, NULL, BLKIO_REQ_NO_UNMAP);
    wait_for_good(0, 1, "zeroes");
    memset(expected + SECTOR, 0, 3 * SECTOR);
    blkioq_write_zeroes(second, 1 << 20, 1 << 20, NULL, 0);
    wait_for_good(1, 1, "zeroes without room");
    memset(expected + (1 << 20), 0, 1 << 20);
    blkioq_flush(first, NULL, 0);
    wait_for_good(0, 1, "a flush");
    move_all(size, 0);

    /* Past the end: refused, and all goes on. */
    blkioq_read(second, size - SECTOR, place(1, 0), 2 * SECTOR, NULL, 0);
    if (wait_for_any(1) >= 0) {
        fprintf(stderr, "a read past the end succeeded\n");
        return 1;
    }
    /* What a discard leaves is not known, so it is written again. */
    blkioq_discard(first, 2 << 20, 1 << 20, NULL, 0);
    wait_for_good(0, 1, "a discard");
    for (size_t at = 2 << 20; at < 3 << 20; at += ROOM) {
        size_t len = (3 << 20) - at < ROOM ? (3 << 20) - at : ROOM;
        memcpy(place(0, 0), expected + at, len);
        blkioq_write(first, at, place(0, 0), len, NULL, BLKIO_REQ_FUA);
        wait_for_good(0, 1, "a durable write");
    }
    move_all(size, 0);
    blkio_destroy(&disk);

    FILE *file = fopen(argv[3], "wb");
    if (!file || fwrite(expected, 1, size, file) != size || fclose(file))
        return 1;
    puts("ok");
    return 0;
}
