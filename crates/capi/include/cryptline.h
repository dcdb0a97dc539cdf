// libcryptline: encrypted disks (LUKS2, LUKS1) opened, created and served. docs/c.md shows how.
//
// Each call gives 0 or -errno, unless it says otherwise; cryptline_last_error() has the text. Handles are opaque: one
// that is null gives -EINVAL, one that is closed or no handle of its kind -EBADF. No call writes to standard output or
// ends the process. Texts end with a zero byte.
//
// Made from crates/capi/src by cbindgen: `cargo xtask header` makes it again.


#ifndef CRYPTLINE_H
#define CRYPTLINE_H

#include <stddef.h>
#include <stdint.h>

// The write is durable when it returns.
#define CRYPTLINE_FUA 1

// No space is allocated for the run.
#define CRYPTLINE_HOLE 1

// The run is known to read as zeros.
#define CRYPTLINE_ZERO (1 << 1)

// Nothing is written, and others may read at the same time.
#define CRYPTLINE_READ_ONLY 1

// Discards are passed down, which shows which blocks are unused.
#define CRYPTLINE_DISCARDS (1 << 1)

// Others write to the target at the same time.
#define CRYPTLINE_SHARED (1 << 2)

// `key_slot` says which key slot, also where it is 0.
#define CRYPTLINE_KEY_SLOT (1 << 3)

// `new_slot` says which key slot, also where it is 0.
#define CRYPTLINE_NEW_SLOT (1 << 4)

// The last key slot may be removed.
#define CRYPTLINE_LAST_SLOT (1 << 5)

// Replace a file that is there already.
#define CRYPTLINE_REPLACE (1 << 6)

// The space of a file is reserved on disk now.
#define CRYPTLINE_PREALLOCATE (1 << 7)

// LUKS1, and not LUKS2.
#define CRYPTLINE_LUKS1 (1 << 8)

// Data goes through the page cache. Without this and CRYPTLINE_DIRECT it does so only where the file system wants it.
#define CRYPTLINE_PAGE_CACHE (1 << 9)

// Data bypasses the page cache (O_DIRECT), or opening fails.
#define CRYPTLINE_DIRECT (1 << 10)

// A queue into a volume, of the thread that opened it.
typedef struct cryptline_queue cryptline_queue;

// A server that runs.
typedef struct cryptline_server cryptline_server;

// An open volume: the decrypted disk. Any thread may use it.
typedef struct cryptline_volume cryptline_volume;

// Bytes such as a passphrase, of which a copy is kept in locked memory. The original is the caller's to wipe.
typedef struct cryptline_bytes {
  // The first byte; null for none.
  const void *data;
  // How many.
  size_t len;
} cryptline_bytes;

// How to open a volume. Set all bytes to zero, then `size`.
typedef struct cryptline_open_options {
  // sizeof(struct cryptline_open_options).
  size_t size;
  // CRYPTLINE_READ_ONLY, CRYPTLINE_DISCARDS, CRYPTLINE_SHARED, CRYPTLINE_KEY_SLOT, and CRYPTLINE_PAGE_CACHE or
  // CRYPTLINE_DIRECT.
  uint32_t flags;
  // With CRYPTLINE_KEY_SLOT: only this key slot is tried.
  uint32_t key_slot;
  // Unlocks with this passphrase.
  struct cryptline_bytes passphrase;
  // Opens with the volume key itself.
  struct cryptline_bytes volume_key;
  // Unlocks with all bytes of this file.
  const char *key_file;
  // The LUKS header is in this file.
  const char *header;
  // Only this partition of the decrypted disk: its number, label or UUID.
  const char *partition;
  // Most that deriving keys may cost, in milliseconds: a header can ask for anything. 0 for five minutes.
  uint64_t kdf_limit_ms;
  // A cipher of the LUKS header that is accepted, exactly as it has it, though no key slot vouches for it; several are
  // separated by spaces.
  const char *accept_cipher;
} cryptline_open_options;

// A run of bytes in one state of allocation.
typedef struct cryptline_extent {
  // First byte.
  uint64_t offset;
  // Bytes.
  uint64_t length;
  // CRYPTLINE_HOLE, CRYPTLINE_ZERO.
  uint32_t flags;
  // Always 0.
  uint32_t reserved;
} cryptline_extent;

// Cost of trying a passphrase. A member that is 0 is measured, or taken from the machine.
typedef struct cryptline_kdf {
  // "argon2id", "argon2i" or "pbkdf2"; null for what cryptsetup would choose.
  const char *name;
  // Passes of Argon2, iterations of PBKDF2; with it nothing is measured.
  uint32_t iterations;
  // Memory of Argon2 in KiB.
  uint32_t memory_kib;
  // Threads of Argon2.
  uint32_t threads;
  // How long unlocking is to take on this machine, in milliseconds.
  uint32_t target_ms;
} cryptline_kdf;

// How to make a volume. Set all bytes to zero, then `size`.
typedef struct cryptline_create_options {
  // sizeof(struct cryptline_create_options).
  size_t size;
  // CRYPTLINE_REPLACE, CRYPTLINE_PREALLOCATE, CRYPTLINE_LUKS1.
  uint32_t flags;
  // Bytes in a cipher sector; 0 for what fits.
  uint32_t sector_size;
  // Size of a file in bytes, header included. A device has its size already.
  uint64_t file_size;
  // The passphrase.
  struct cryptline_bytes passphrase;
  // Cost of trying it.
  struct cryptline_kdf kdf;
  // The cipher, such as "aes-xts-plain64", which null stands for.
  const char *cipher;
  // Length of the volume key in bits; 0 for 512.
  uint32_t key_bits;
  // Always 0.
  uint32_t reserved;
  // The label (LUKS2); null for none.
  const char *label;
  // The UUID; null for a random one.
  const char *uuid;
  // A broken cipher, which is made only if it is named here, too.
  const char *accept_cipher;
} cryptline_create_options;

// How to change key slots. Set all bytes to zero, then `size`.
typedef struct cryptline_key_options {
  // sizeof(struct cryptline_key_options).
  size_t size;
  // CRYPTLINE_KEY_SLOT, CRYPTLINE_NEW_SLOT, CRYPTLINE_LAST_SLOT.
  uint32_t flags;
  // With CRYPTLINE_KEY_SLOT: the key slot that is meant.
  uint32_t key_slot;
  // Key that opens the volume now: a passphrase,
  struct cryptline_bytes passphrase;
  // or the volume key,
  struct cryptline_bytes volume_key;
  // or all bytes of a file.
  const char *key_file;
  // The LUKS header is in this file.
  const char *header;
  // The new passphrase.
  struct cryptline_bytes new_passphrase;
  // Cost of trying it.
  struct cryptline_kdf kdf;
  // With CRYPTLINE_NEW_SLOT: the new key slot. Otherwise the lowest that is free.
  uint32_t new_slot;
  // Always 0.
  uint32_t reserved;
  // Most that deriving keys may cost, in milliseconds. 0 for five minutes.
  uint64_t kdf_limit_ms;
  // A cipher of the LUKS header that is accepted, exactly as it has it, though no key slot vouches for it; several are
  // separated by spaces.
  const char *accept_cipher;
} cryptline_key_options;

// How a request has ended.
typedef struct cryptline_completion {
  // The request's.
  uint64_t token;
  // 0 or -errno.
  int result;
  // Always 0.
  uint32_t reserved;
} cryptline_completion;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reason of the last failure of a call of this thread, in one line; never null. The text is good until the
// next call of this thread that fails.
const char *cryptline_last_error(void);

// The version of the library, such as "0.1.0".
const char *cryptline_version(void);

// Opens what `target` names: a path, `ram:SIZE`, an NBD URI, `disk.img?partition=2` and so on. Without options it is a
// LUKS volume that is read and written, and nothing opens it: give a key. `*volume` is null where it fails.
//
// -EKEYREJECTED: no key slot opens with this key. -EBUSY: another program has it open.
//
// # Safety
// `volume` is a place for a handle, `target` a text; `given` is null or points to options whose pointers are null or
// what their fields say.
int cryptline_open(struct cryptline_volume **volume,
                   const char *target,
                   const struct cryptline_open_options *given);

// Closes a volume. It waits for calls under way in other threads; queues and servers over it go on until they are
// closed, and the volume stays open until then. Nothing is flushed: what must be durable is to be flushed first.
int cryptline_close(struct cryptline_volume *volume);

// Bytes of the decrypted disk, in `*size`.
//
// # Safety
// `size` is a place for a number.
int cryptline_size(struct cryptline_volume *volume, uint64_t *size);

// Reads `len` bytes from `offset` on; all of them, or it fails. Any offset and length will do.
//
// # Safety
// `len` bytes can be written at `target`.
int cryptline_read(struct cryptline_volume *volume, void *target, size_t len, uint64_t offset);

// Writes `len` bytes at `offset`; all of them, or it fails. `flags`: CRYPTLINE_FUA. Any offset and length will do, but
// for volumes that others write to (CRYPTLINE_SHARED) and zoned ones: -EINVAL for what is not whole blocks.
//
// # Safety
// `len` bytes can be read at `source`.
int cryptline_write(struct cryptline_volume *volume,
                    const void *source,
                    size_t len,
                    uint64_t offset,
                    uint32_t flags);

// Makes everything durable that was written, by whichever thread. Once it has failed it fails until the volume is
// opened again: what was written may be lost.
int cryptline_flush(struct cryptline_volume *volume);

// Says that a range is no longer needed; what it holds is then unspecified. -EOPNOTSUPP without CRYPTLINE_DISCARDS.
int cryptline_discard(struct cryptline_volume *volume,
                      uint64_t offset,
                      uint64_t len);

// Makes a range read as zeros.
int cryptline_zero(struct cryptline_volume *volume, uint64_t offset, uint64_t len);

// Allocation from `offset` on, as far as it is known: up to `room` runs, one behind the other; `*count` says how many.
// Go on behind the last of them until the disk ends.
//
// # Safety
// `room` extents can be written at `extents`; `count` is a place for a number.
int cryptline_extents(struct cryptline_volume *volume,
                      uint64_t offset,
                      struct cryptline_extent *extents,
                      size_t room,
                      size_t *count);

// Description of the disk, as a JSON object in `text`, with a zero byte behind it: cipher, size, warnings and so on.
// `*needed` (if not null) says how many bytes that takes; -ERANGE where `room` is less.
//
// # Safety
// `room` bytes can be written at `target`; `needed` is null or a place for a size.
int cryptline_info(struct cryptline_volume *volume,
                   char *target,
                   size_t room,
                   size_t *needed);

// Makes a LUKS volume in a new file, or on a device that is there. A file gets its name when it is whole.
// `*data_size` (if not null) is then the size of the decrypted disk in bytes.
//
// # Safety
// `target` is a text; `given` points to options whose pointers are null or what their fields say; `data_size` is null
// or a place for a number.
int cryptline_create(const char *target,
                     const struct cryptline_create_options *given,
                     uint64_t *data_size);

// Contents of a LUKS header, as a JSON object: version, label, `keyslots`, `tokens` and so on. No key is needed; of the
// options only `header` counts, and they may be null. For `room` and `needed` see cryptline_info.
//
// # Safety
// `target` is a text; `given` is null or points to options; `room` bytes can be written at `json`; `needed` is null or
// a place for a size.
int cryptline_key_list(const char *target,
                       const struct cryptline_open_options *given,
                       char *json,
                       size_t room,
                       size_t *needed);

// Adds a passphrase; `*slot` (if not null) is the number of its key slot.
//
// # Safety
// `target` is a text; `given` points to options whose pointers are null or what their fields say; `slot` is null or a
// place for a number.
int cryptline_key_add(const char *target,
                      const struct cryptline_key_options *given,
                      uint32_t *slot);

// Puts the new passphrase in the place of the one that is given.
//
// # Safety
// As cryptline_key_add.
int cryptline_key_change(const char *target,
                         const struct cryptline_key_options *given,
                         uint32_t *slot);

// Removes a key slot: with CRYPTLINE_KEY_SLOT that one, where the passphrase (if one is given) must open another;
// otherwise the one that the passphrase opens. The last one is kept without CRYPTLINE_LAST_SLOT.
//
// # Safety
// As cryptline_key_add.
int cryptline_key_remove(const char *target,
                         const struct cryptline_key_options *given,
                         uint32_t *slot);

// Opens a queue for up to `depth` requests at a time, for the calling thread alone. The volume stays open until its
// queues are closed, too.
//
// # Safety
// `queue` is a place for a handle.
int cryptline_queue_open(struct cryptline_queue **queue,
                         struct cryptline_volume *volume,
                         uint32_t depth);

// Closes a queue. Requests in flight end first; what they read is lost, and no buffer is used any more. A thread that
// ends closes its queues.
int cryptline_queue_close(struct cryptline_queue *queue);

// A descriptor that is readable while cryptline_queue_poll has something to do, for a loop of the caller's own. It
// belongs to the queue: it must not be read or closed. Otherwise -errno.
int cryptline_queue_fd(struct cryptline_queue *queue);

// Submits a read. It begins with the next cryptline_queue_poll at the latest. Any offset and length will do, but for
// volumes that others write to (CRYPTLINE_SHARED) and zoned ones: there, what is not whole blocks ends with -EINVAL.
//
// # Safety
// `len` bytes can be written at `target`, and nobody else uses them until the request has been collected or the queue
// closed.
int cryptline_queue_read(struct cryptline_queue *queue,
                         void *target,
                         size_t len,
                         uint64_t offset,
                         uint64_t token);

// Submits a write. The bytes are copied, so the buffer is free again when this returns. `flags`: CRYPTLINE_FUA. Offset
// and length are as for a read.
//
// # Safety
// `len` bytes can be read at `source`.
int cryptline_queue_write(struct cryptline_queue *queue,
                          const void *source,
                          size_t len,
                          uint64_t offset,
                          uint32_t flags,
                          uint64_t token);

// Submits a flush: durable is what was collected before.
int cryptline_queue_flush(struct cryptline_queue *queue, uint64_t token);

// Submits a discard.
int cryptline_queue_discard(struct cryptline_queue *queue,
                            uint64_t offset,
                            uint64_t len,
                            uint64_t token);

// Submits that a range is to read as zeros; -EOPNOTSUPP where the volume can only write them.
int cryptline_queue_zero(struct cryptline_queue *queue,
                         uint64_t offset,
                         uint64_t len,
                         uint64_t token);

// Hands over what was submitted and collects up to `room` requests that have ended, in any order: how many, or
// -errno where there are none to collect and the queue cannot be waited for. It waits until there is one, but no
// longer than `timeout_ms`: 0 not at all, less than 0 without end. Where nothing is in flight it does not wait.
//
// # Safety
// `room` completions can be written at `done`.
int cryptline_queue_poll(struct cryptline_queue *queue,
                         struct cryptline_completion *done,
                         size_t room,
                         int timeout_ms);

// Serves a volume over NBD to all who connect to `fd`, a listening Unix or TCP socket, until the server is stopped. The
// socket is duplicated, and its file description becomes non-blocking. There is no TLS: whoever can connect has the
// disk. `name` is the export's name; null for the empty one.
//
// The volume can be used meanwhile, and closed.
//
// # Safety
// `server` is a place for a handle; `name` is null or a text.
int cryptline_serve_nbd(struct cryptline_server **server,
                        struct cryptline_volume *volume,
                        int fd,
                        const char *name);

// Stops a server: what it has taken is finished, for 5 seconds at most, and everything is made durable. Where that
// fails, so does this; the server is gone either way. In a forked process, its parent's server goes on, and this fails
// with -EBADF.
int cryptline_server_stop(struct cryptline_server *server);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CRYPTLINE_H */
