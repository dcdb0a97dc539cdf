/* Every call of the library, rightly and wrongly: calls FOLDER. Ends with 0 where all is as it should be. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cryptline.h>

#define IS(call, expected) is(__LINE__, #call, (call), (expected))

static void is(int line, const char *call, long long found, long long expected)
{
    if (found == expected)
        return;
    fprintf(stderr, "line %d: %s gives %lld, not %lld (%s)\n", line, call, found, expected, cryptline_last_error());
    exit(1);
}

static struct cryptline_bytes text(const char *text)
{
    struct cryptline_bytes bytes = { text, strlen(text) };
    return bytes;
}

static struct cryptline_kdf cheap(void)
{
    struct cryptline_kdf kdf;
    memset(&kdf, 0, sizeof kdf);
    kdf.name = "pbkdf2";
    kdf.iterations = 1000;
    return kdf;
}

static struct cryptline_open_options opening(const char *passphrase)
{
    struct cryptline_open_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.passphrase = text(passphrase);
    return options;
}

static struct cryptline_key_options editing(const char *passphrase, const char *new_passphrase)
{
    struct cryptline_key_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.passphrase = text(passphrase);
    options.new_passphrase = text(new_passphrase);
    options.kdf = cheap();
    return options;
}

static void volumes_are_made(const char *path)
{
    struct cryptline_create_options options;
    uint64_t size = 0;
    memset(&options, 0, sizeof options);
    IS(cryptline_create(path, &options, &size), -EINVAL);
    options.size = sizeof options;
    IS(cryptline_create(path, &options, &size), -EINVAL);
    options.file_size = 20 << 20;
    IS(cryptline_create(path, &options, &size), -ENOKEY);
    options.passphrase = text("first");
    options.kdf = cheap();
    options.label = "of C";
    IS(cryptline_create(NULL, &options, &size), -EINVAL);
    _Alignas(8) char unaligned[16];
    IS(cryptline_create(path, &options, (uint64_t *)(void *)(unaligned + 1)), -EINVAL);
    IS(strstr(cryptline_last_error(), "not aligned to 8 bytes") != NULL, 1);
    IS(access(path, F_OK), -1);
    IS(cryptline_create(path, &options, &size), 0);
    IS(size, 4 << 20);
    IS(cryptline_create(path, &options, NULL), -EEXIST);
    options.flags = CRYPTLINE_REPLACE;
    IS(cryptline_create(path, &options, NULL), 0);
    options.flags = CRYPTLINE_KEY_SLOT;
    IS(cryptline_create(path, &options, NULL), -EINVAL);
}

static void options_of_other_sizes(const char *path)
{
    struct {
        struct cryptline_open_options known;
        uint64_t later;
    } longer;
    cryptline_volume *volume = (cryptline_volume *)&longer;
    memset(&longer, 0, sizeof longer);
    longer.known = opening("first");
    longer.known.size = sizeof longer;
    IS(cryptline_open(&volume, path, &longer.known), 0);
    IS(cryptline_close(volume), 0);
    longer.later = 1;
    IS(cryptline_open(&volume, path, &longer.known), -E2BIG);
    IS(volume == NULL, 1);
    struct cryptline_open_options older = opening("first");
    memset(&older.key_file, 0xff, sizeof older - ((char *)&older.key_file - (char *)&older));
    older.size = (size_t)((char *)&older.key_file - (char *)&older);
    IS(cryptline_open(&volume, path, &older), 0);
    IS(cryptline_close(volume), 0);
    older.size = 7;
    IS(cryptline_open(&volume, path, &older), -EINVAL);
    older = opening("first");
    older.flags = 1u << 31;
    IS(cryptline_open(&volume, path, &older), -EINVAL);
    older.flags = 0;
    older.key_file = path;
    IS(cryptline_open(&volume, path, &older), -EINVAL);
}

/* The cipher has to be accepted for making the volume and for opening it, since nothing vouches for it. */
static void broken_ciphers_are_accepted_by_name(const char *folder)
{
    char path[512];
    cryptline_volume *volume;
    struct cryptline_create_options create;
    struct cryptline_open_options open = opening("first");
    struct cryptline_key_options edit = editing("first", "second");
    uint32_t slot;
    memset(&create, 0, sizeof create);
    create.size = sizeof create;
    create.passphrase = open.passphrase;
    create.kdf = edit.kdf;
    create.file_size = 20 << 20;
    create.cipher = "aes-xts-null";
    snprintf(path, sizeof path, "%s/broken", folder);
    IS(cryptline_create(path, &create, NULL), -EIO);
    create.accept_cipher = "aes-xts-plain64 aes-xts-null";
    IS(cryptline_create(path, &create, NULL), 0);
    IS(cryptline_open(&volume, path, &open), -EIO);
    IS(cryptline_key_add(path, &edit, &slot), -EIO);
    open.accept_cipher = edit.accept_cipher = "aes-xts-null";
    IS(cryptline_open(&volume, path, &open), 0);
    IS(cryptline_close(volume), 0);
    IS(cryptline_key_add(path, &edit, &slot), 0);
}

static void wrong_handles(const char *path)
{
    struct cryptline_open_options options = opening("first");
    cryptline_volume *volume = NULL, *none = NULL, *foreign = (cryptline_volume *)&options;
    cryptline_queue *queue = NULL;
    cryptline_server *server = NULL;
    char bytes[512];
    uint64_t size;
    struct cryptline_completion done;
    struct cryptline_extent extent;
    size_t count;
    IS(cryptline_open(NULL, path, &options), -EINVAL);
    IS(cryptline_open(&volume, NULL, &options), -EINVAL);
    IS(cryptline_open(&volume, "", &options), -EINVAL);
    IS(cryptline_open(&volume, path, NULL), -ENOKEY);
    IS(cryptline_open(&volume, "/nowhere/at/all", &options), -ENOENT);
    options = opening("wrong");
    IS(cryptline_open(&volume, path, &options), -EKEYREJECTED);
    IS(strlen(cryptline_last_error()) > 0, 1);
    options = opening("first");
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_open(&none, path, &options), -EBUSY);
    IS(none == NULL, 1);
    IS(cryptline_queue_open(&queue, volume, 4), 0);
    for (int round = 0; round < 3; round++) {
        /* Null, foreign, and of another kind. */
        cryptline_volume *wrong = round == 0 ? NULL : round == 1 ? foreign : (cryptline_volume *)queue;
        int expected = round == 0 ? -EINVAL : -EBADF;
        IS(cryptline_size(wrong, &size), expected);
        IS(cryptline_read(wrong, bytes, 512, 0), expected);
        IS(cryptline_write(wrong, bytes, 512, 0, 0), expected);
        IS(cryptline_flush(wrong), expected);
        IS(cryptline_discard(wrong, 0, 512), expected);
        IS(cryptline_zero(wrong, 0, 512), expected);
        IS(cryptline_extents(wrong, 0, &extent, 1, &count), expected);
        IS(cryptline_info(wrong, bytes, sizeof bytes, NULL), expected);
        IS(cryptline_queue_open(&(cryptline_queue *){ NULL }, wrong, 1), expected);
        IS(cryptline_serve_nbd(&server, wrong, 0, NULL), expected);
        IS(cryptline_close(wrong), expected);
        cryptline_queue *not_queue = round == 2 ? (cryptline_queue *)volume : (cryptline_queue *)wrong;
        IS(cryptline_queue_fd(not_queue), expected);
        IS(cryptline_queue_read(not_queue, bytes, 512, 0, 0), expected);
        IS(cryptline_queue_write(not_queue, bytes, 512, 0, 0, 0), expected);
        IS(cryptline_queue_flush(not_queue, 0), expected);
        IS(cryptline_queue_discard(not_queue, 0, 512, 0), expected);
        IS(cryptline_queue_zero(not_queue, 0, 512, 0), expected);
        IS(cryptline_queue_poll(not_queue, &done, 1, 0), expected);
        IS(cryptline_queue_close(not_queue), expected);
        IS(cryptline_server_stop((cryptline_server *)wrong), expected);
    }
    IS(cryptline_read(volume, NULL, 512, 0), -EINVAL);
    IS(cryptline_read(volume, bytes, SIZE_MAX, 0), -EINVAL);
    IS(cryptline_read(volume, bytes, 512, UINT64_MAX), -EINVAL);
    IS(cryptline_write(volume, bytes, 512, 0, 2), -EINVAL);
    IS(cryptline_size(volume, NULL), -EINVAL);
    IS(cryptline_extents(volume, 0, NULL, 1, &count), -EINVAL);
    IS(cryptline_queue_open(NULL, volume, 1), -EINVAL);
    IS(cryptline_queue_open(&(cryptline_queue *){ NULL }, volume, 0), -EINVAL);
    IS(cryptline_queue_poll(queue, NULL, 1, 0), -EINVAL);
    IS(cryptline_serve_nbd(&server, volume, -1, NULL), -EBADF);
    IS(cryptline_serve_nbd(&server, volume, 0, NULL), -EINVAL);
    IS(cryptline_queue_close(queue), 0);
    IS(cryptline_queue_close(queue), -EBADF);
    IS(cryptline_close(volume), 0);
    IS(cryptline_close(volume), -EBADF);
    IS(cryptline_read(volume, bytes, 512, 0), -EBADF);
}

static void bytes_are_kept(const char *path)
{
    struct cryptline_open_options options = opening("first");
    cryptline_volume *volume = NULL;
    struct cryptline_extent extents[8];
    char bytes[100], json[4096];
    size_t count = 0, needed = 0;
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_zero(volume, 0, 8192), 0);
    IS(cryptline_write(volume, "across", 6, 4093, CRYPTLINE_FUA), 0);
    IS(cryptline_read(volume, bytes, 10, 4091), 0);
    IS(memcmp(bytes, "\0\0across\0\0", 10), 0);
    IS(cryptline_flush(volume), 0);
    IS(cryptline_discard(volume, 0, 4096), -EOPNOTSUPP);
    IS(cryptline_extents(volume, 0, extents, 8, &count), 0);
    IS(count >= 1 && extents[0].offset == 0 && extents[0].length > 0, 1);
    IS(cryptline_info(volume, NULL, 0, &needed), -ERANGE);
    IS(cryptline_info(volume, json, needed, NULL), 0);
    IS(strlen(json) + 1, (long long)needed);
    IS(strstr(json, "\"kind\":\"LUKS2\"") != NULL, 1);
    IS(cryptline_close(volume), 0);

    options.flags = CRYPTLINE_READ_ONLY;
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_read(volume, bytes, 6, 4093), 0);
    IS(memcmp(bytes, "across", 6), 0);
    IS(cryptline_write(volume, "x", 1, 0, 0), -EPERM);
    IS(cryptline_close(volume), 0);
}

/* Whether the file is open with O_DIRECT. */
static int is_direct(const char *path)
{
    char name[64], open_file[512], line[64];
    unsigned flags = 0;
    int direct = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(name, open_file, sizeof open_file - 1);
        if (len < 0)
            continue;
        open_file[len] = 0;
        snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(name, "r");
        while (info && fgets(line, sizeof line, info))
            if (sscanf(line, "flags: %o", &flags) == 1)
                direct |= !strcmp(open_file, path) && (flags & O_DIRECT) != 0;
        if (info)
            fclose(info);
    }
    return direct;
}

static void page_cache_is_used_or_bypassed(const char *path)
{
    struct cryptline_open_options options = opening("first");
    cryptline_volume *volume;
    IS(cryptline_open(&volume, path, &options), 0);
    int usual = is_direct(path);
    IS(cryptline_close(volume), 0);

    options.flags = CRYPTLINE_PAGE_CACHE;
    IS(cryptline_open(&volume, path, &options), 0);
    IS(is_direct(path), 0);
    IS(cryptline_close(volume), 0);

    options.flags = CRYPTLINE_DIRECT;
    IS(cryptline_open(&volume, path, &options), usual ? 0 : -EINVAL);
    if (usual) {
        IS(is_direct(path), 1);
        IS(cryptline_close(volume), 0);
    }
    options.flags = CRYPTLINE_DIRECT | CRYPTLINE_PAGE_CACHE;
    IS(cryptline_open(&volume, path, &options), -EINVAL);
}

static void key_slots_are_changed(const char *path)
{
    struct cryptline_key_options options = editing("first", "second");
    struct cryptline_open_options open = opening("third");
    cryptline_volume *volume;
    uint32_t slot = 99;
    char json[8192];
    IS(cryptline_key_add(path, NULL, &slot), -EINVAL);
    options.flags = CRYPTLINE_NEW_SLOT;
    options.new_slot = 3;
    IS(cryptline_key_add(path, &options, &slot), 0);
    IS(slot, 3);
    options = editing("nobody's", "second");
    IS(cryptline_key_add(path, &options, &slot), -EKEYREJECTED);
    options = editing("second", "third");
    IS(cryptline_key_change(path, &options, &slot), 0);
    IS(slot, 3);
    IS(cryptline_key_list(path, NULL, json, sizeof json, NULL), 0);
    IS(strstr(json, "\"keyslots\":[{\"id\":0") != NULL && strstr(json, "{\"id\":3") != NULL, 1);
    IS(cryptline_open(&volume, path, &open), 0);
    IS(cryptline_close(volume), 0);
    options = editing("third", "");
    IS(cryptline_key_remove(path, &options, &slot), 0);
    IS(slot, 3);
    IS(cryptline_open(&volume, path, &open), -EKEYREJECTED);
    options = editing("first", "");
    options.flags = CRYPTLINE_KEY_SLOT;
    IS(cryptline_key_remove(path, &options, &slot), -EINVAL);
}

static void *elsewhere(void *queue)
{
    struct cryptline_completion done;
    IS(cryptline_queue_poll(queue, &done, 1, 0), -EBADF);
    return NULL;
}

static void queues_end_what_was_submitted(const char *path)
{
    struct cryptline_open_options options = opening("first");
    cryptline_volume *volume = NULL;
    cryptline_queue *queue = NULL;
    struct cryptline_completion done[4];
    char bytes[4096];
    pthread_t other;
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_queue_open(&queue, volume, 2), 0);
    IS(cryptline_queue_poll(queue, done, 4, -1), 0);
    IS(cryptline_queue_read(queue, bytes, 4096, 0, 1), 0);
    IS(cryptline_queue_read(queue, bytes, 6, 4093, 2), 0);
    IS(cryptline_queue_read(queue, bytes, 4096, 0, 3), -EAGAIN);
    int ended = 0;
    while (ended < 2) {
        int count = cryptline_queue_poll(queue, done, 1, -1);
        IS(count, 1);
        IS(done[0].result, 0);
        ended += count;
    }
    IS(cryptline_queue_read(queue, NULL, 4096, 0, 3), -EINVAL);
    IS(cryptline_queue_read(queue, bytes, 4096, UINT64_MAX - 1, 4), 0);
    IS(cryptline_queue_poll(queue, done, 4, -1), 1);
    IS(done[0].token, 4);
    IS(done[0].result, -EINVAL);
    IS(cryptline_queue_discard(queue, 0, 4096, 5), 0);
    IS(cryptline_queue_poll(queue, done, 4, -1), 1);
    IS(done[0].result, -EOPNOTSUPP);
    IS(pthread_create(&other, NULL, elsewhere, queue), 0);
    IS(pthread_join(other, NULL), 0);
    /* Closed first, the volume lives until its queue is. */
    IS(cryptline_close(volume), 0);
    IS(cryptline_queue_write(queue, "last", 4, 0, CRYPTLINE_FUA, 6), 0);
    IS(cryptline_queue_poll(queue, done, 4, -1), 1);
    IS(done[0].result, 0);
    IS(cryptline_queue_close(queue), 0);
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_read(volume, bytes, 4, 0), 0);
    IS(memcmp(bytes, "last", 4), 0);
    IS(cryptline_close(volume), 0);
}

/* Puts something else in the place of an io_uring, and the ring in `*kept`; where it was, or -1 where there is none. */
static int break_ring(int *kept)
{
    char name[64], found[64];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(name, found, sizeof found - 1);
        if (length <= 0)
            continue;
        found[length] = '\0';
        if (strstr(found, "io_uring") == NULL)
            continue;
        int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        *kept = dup(fd);
        IS(dup2(other, fd), fd);
        close(other);
        return fd;
    }
    return -1;
}

static void queue_that_fails_gives_what_has_ended(const char *path)
{
    struct cryptline_open_options options = opening("first");
    cryptline_volume *volume = NULL;
    cryptline_queue *queue = NULL;
    struct cryptline_completion done[4];
    char bytes[4096];
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_queue_open(&queue, volume, 4), 0);
    IS(cryptline_queue_read(queue, bytes, 4096, UINT64_MAX - 1, 1), 0);
    IS(cryptline_queue_read(queue, bytes, 4096, UINT64_MAX - 1, 2), 0);
    int kept = -1, broken = break_ring(&kept);
    IS(cryptline_queue_read(queue, bytes, 4096, 0, 3), 0);
    for (int token = 1; token <= 2; token++) {
        IS(cryptline_queue_poll(queue, done, 1, -1), 1);
        IS(done[0].token, token);
        IS(done[0].result, -EINVAL);
    }
    if (broken >= 0) {
        IS(cryptline_queue_poll(queue, done, 4, -1) < 0, 1);
        IS(dup2(kept, broken), broken);
        close(kept);
    }
    IS(cryptline_queue_poll(queue, done, 4, -1), 1);
    IS(done[0].token, 3);
    IS(done[0].result, 0);
    IS(cryptline_queue_close(queue), 0);
    IS(cryptline_close(volume), 0);
}

static void clients_are_served(const char *path, const char *folder)
{
    struct cryptline_open_options options = opening("first");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    cryptline_volume *volume = NULL;
    cryptline_server *server = NULL;
    char greeting[8];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/nbd", folder);
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    IS(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_serve_nbd(&server, volume, listening, NULL), -EINVAL);
    IS(listen(listening, 5), 0);
    // A client that is gone before it is greeted, and a program that SIGPIPE ends.
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    IS(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    close(client);
    IS(cryptline_serve_nbd(&server, volume, listening, "disk"), 0);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    IS(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    IS(recv(client, greeting, 8, MSG_WAITALL), 8);
    IS(memcmp(greeting, "NBDMAGIC", 8), 0);
    close(client);
    // A forked process leaves the server to its parent.
    pid_t child = fork();
    if (child == 0) {
        int stopped = cryptline_server_stop(server);
        // At the end of this process, valgrind would miss the threads of the other.
        execlp(stopped == -EBADF && strstr(cryptline_last_error(), "forked") ? "true" : "false", "true", NULL);
        _exit(2);
    }
    int ended = -1;
    IS(waitpid(child, &ended, 0), child);
    IS(ended, 0);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    IS(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    IS(recv(client, greeting, 8, MSG_WAITALL), 8);
    close(client);
    if (getenv("CLIENTS")) {
        char uri[512];
        snprintf(uri, sizeof uri, "nbd+unix:///disk?socket=%s", address.sun_path);
        setenv("uri", uri, 1);
        IS(system(getenv("CLIENTS")), 0);
    }
    IS(cryptline_close(volume), 0);
    IS(cryptline_server_stop(server), 0);
    IS(cryptline_server_stop(server), -EBADF);
    IS(cryptline_open(&volume, path, &options), 0);
    IS(cryptline_close(volume), 0);
    close(listening);
}

int main(int argc, char **argv)
{
    char path[512];
    if (argc != 2)
        return 2;
    snprintf(path, sizeof path, "%s/disk.img", argv[1]);
    IS(strlen(cryptline_version()) > 0, 1);
    IS(strcmp(cryptline_last_error(), ""), 0);
    volumes_are_made(path);
    options_of_other_sizes(path);
    broken_ciphers_are_accepted_by_name(argv[1]);
    wrong_handles(path);
    bytes_are_kept(path);
    page_cache_is_used_or_bypassed(path);
    key_slots_are_changed(path);
    queues_end_what_was_submitted(path);
    queue_that_fails_gives_what_has_ended(path);
    clients_are_served(path, argv[1]);
    puts("all calls do what the header says");
    return 0;
}
