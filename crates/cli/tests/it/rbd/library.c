/* Ceph's two libraries in one, with an empty image in memory: what they do where threads are short, and while a process
 * ends, which is to throw through whoever has called them. On standard error it says when an image that was open for writing was
 * closed. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define THREADS 19
#define SIZE (8 << 20)

typedef void (*callback)(void *, void *);
typedef void (*update)(void *);

struct completion {
    callback call;
    void *argument;
    ssize_t result;
};

static char image[SIZE];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_down;
static update watcher;
static void *watched;
/* The first flush is followed by news of the image; the thread that then asks for its size is kept. */
static int was_flushed, has_told;
/* Calls under way, and whether the library's own objects are gone. */
static volatile int inside, is_gone;

static void throw_up(void) {
    static struct _Unwind_Exception exception;
    memcpy(&exception.exception_class, "GNUCC++", 8);
    _Unwind_RaiseException(&exception);
    abort();
}

__attribute__((destructor)) static void end(void) {
    is_gone = 1;
    for (int i = 0; inside && i < 10000; i++)
        usleep(1000);
}

static int is_size_thread(void) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return !strcmp(name, "rbd-size");
}

/* librados */

static pthread_t threads[THREADS];
static int started, connections;

static void *idle(void *nothing) {
    pthread_mutex_lock(&mutex);
    while (!is_down)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return nothing;
}

int rados_create2(void **handle, const char *cluster, const char *name, uint64_t flags) {
    (void)cluster, (void)name, (void)flags;
    *handle = image;
    connections++;
    return 0;
}
int rados_conf_read_file(void *handle, const char *path) { (void)handle, (void)path; return 0; }
int rados_conf_parse_env(void *handle, const char *name) { (void)handle, (void)name; return 0; }
int rados_conf_set(void *handle, const char *option, const char *value) {
    (void)handle, (void)option, (void)value;
    return 0;
}
int rados_conf_get(void *handle, const char *option, char *value, size_t len) {
    (void)handle, (void)option, (void)value, (void)len;
    return -ENOENT;
}
int rados_connect(void *handle) {
    (void)handle;
    for (is_down = 0; started < THREADS; started++)
        if (pthread_create(&threads[started], NULL, idle, NULL))
            throw_up();
    return 0;
}
void rados_shutdown(void *handle) {
    (void)handle;
    if (--connections)
        return;
    pthread_mutex_lock(&mutex);
    is_down = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    while (started)
        pthread_join(threads[--started], NULL);
}
int rados_ioctx_create(void *handle, const char *pool, void **context) {
    (void)handle, (void)pool;
    *context = image;
    return 0;
}
void rados_ioctx_destroy(void *context) { (void)context; }
void rados_ioctx_set_namespace(void *context, const char *name) { (void)context, (void)name; }
int rados_notify2(void) { return -ENOENT; }
void rados_buffer_free(char *buffer) { (void)buffer; }

/* librbd */

void rbd_version(int *major, int *minor, int *more) { *major = 1, *minor = 17, *more = 0; }
int rbd_open(void *context, const char *name, void **handle, const char *snapshot) {
    (void)context, (void)name, (void)snapshot;
    *handle = image;
    return 0;
}
int rbd_open_read_only(void *context, const char *name, void **handle, const char *snapshot) {
    (void)context, (void)name, (void)snapshot;
    *handle = image + 1;
    return 0;
}
int rbd_close(void *handle) {
    return handle == image && write(STDERR_FILENO, "closed\n", 7) < 0;
}
int rbd_stat(void *handle, uint64_t *info, size_t len) {
    (void)handle;
    memset(info, 0, len);
    info[0] = SIZE, info[1] = 4 << 20;
    return 0;
}
int rbd_get_size(void *handle, uint64_t *size) {
    (void)handle;
    inside++;
    *size = SIZE;
    if (is_size_thread() && has_told) {
        const char *time = getenv("HOLD_MS");
        for (int left = time ? atoi(time) : 0; left && !is_gone; left--)
            usleep(1000);
    } else if (is_size_thread() && was_flushed && watcher) {
        // Asked for the flush: there is news by now, so that it asks once more.
        has_told = 1;
        watcher(watched);
    }
    if (is_gone)
        throw_up();
    inside--;
    return 0;
}
static int number(uint64_t *place, uint64_t value) {
    *place = value;
    return 0;
}
int rbd_get_features(void *handle, uint64_t *features) { (void)handle; return number(features, 1 << 2); }
int rbd_get_flags(void *handle, uint64_t *flags) { (void)handle; return number(flags, 0); }
int rbd_get_stripe_count(void *handle, uint64_t *count) { (void)handle; return number(count, 1); }
int rbd_get_overlap(void *handle, uint64_t *overlap) { (void)handle; return number(overlap, 0); }
int rbd_mirror_image_get_info(void *handle, void *info, size_t len) {
    (void)handle;
    memset(info, 0, len);
    return 0;
}
void rbd_mirror_image_get_info_cleanup(void *info) { (void)info; }
int rbd_config_image_list(void *handle, void *options, int *count) {
    (void)handle, (void)options;
    *count = 0;
    return 0;
}
void rbd_config_image_list_cleanup(void *options, int count) { (void)options, (void)count; }
int rbd_get_id(void *handle, char *id, size_t len) {
    (void)handle;
    memset(id, 0, len);
    *id = '1';
    return 0;
}
int rbd_snap_get_id(void) { return -ENOENT; }
int rbd_snap_get_namespace_type(void) { return -ENOENT; }
int rbd_lock_acquire(void *handle, int mode) { (void)handle, (void)mode; return 0; }
int rbd_lock_get_owners(void) { return -ENOENT; }
void rbd_lock_get_owners_cleanup(void) {}
int rbd_watchers_list(void) { return -ENOENT; }
void rbd_watchers_list_cleanup(void) {}
int rbd_update_watch(void *handle, uint64_t *watch, update call, void *argument) {
    (void)handle;
    watcher = call, watched = argument;
    return number(watch, 1);
}
int rbd_update_unwatch(void *handle, uint64_t watch) {
    (void)handle, (void)watch;
    watcher = NULL;
    return 0;
}
int rbd_diff_iterate2(void) { return 0; }

int rbd_aio_create_completion(void *argument, callback call, struct completion **made) {
    *made = malloc(sizeof **made);
    **made = (struct completion){call, argument, 0};
    return 0;
}
ssize_t rbd_aio_get_return_value(struct completion *done) { return done->result; }
void rbd_aio_release(struct completion *done) { free(done); }
static int complete(struct completion *done, ssize_t result) {
    done->result = result;
    done->call(done, done->argument);
    return 0;
}
int rbd_aio_read(void *handle, uint64_t at, size_t len, char *to, struct completion *done) {
    (void)handle;
    memcpy(to, image + at, len);
    return complete(done, len);
}
int rbd_aio_write2(void *handle, uint64_t at, size_t len, const char *from, struct completion *done, int flags) {
    (void)handle, (void)flags;
    memcpy(image + at, from, len);
    return complete(done, 0);
}
int rbd_aio_flush(void *handle, struct completion *done) {
    (void)handle;
    was_flushed = 1;
    return complete(done, 0);
}
int rbd_aio_discard(void *handle, uint64_t at, uint64_t len, struct completion *done) {
    (void)handle;
    memset(image + at, 0, len);
    return complete(done, 0);
}
int rbd_aio_write_zeroes(void *handle, uint64_t at, size_t len, struct completion *done, int zero, int flags) {
    (void)zero, (void)flags;
    return rbd_aio_discard(handle, at, len, done);
}
