/* Memory of the cards: addresses of the host, which take no memory until they are written.
 *
 * A copy above PLACER_SIMULATION_KEPT_BYTES (256 KiB) is not kept: its destination then reads as
 * zeros, in every run.  So weights and activations of a card of 80 GB cost the host nothing, and
 * the small tensors that programs read back (counters, shapes, indices) are what they should be.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096ull

static struct block *blocks;   /* by address */
static size_t block_count, block_room;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

/* The number of blocks that begin at or before an address. */
static size_t blocks_before(const char *address) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static uint64_t whole_pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void *take_addresses(uint64_t bytes) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    madvise(start, bytes, MADV_NOHUGEPAGE); /* a byte that is written takes a small page */
    return start;
}

uint64_t free_bytes(const struct card *card) {
    uint64_t used = card->context_bytes + card->taken_bytes;
    return used < card->total_bytes ? card->total_bytes - used : 0;
}

static void *take_block(struct card *card, uint64_t bytes, int is_counted) {
    uint64_t length = whole_pages(bytes ? bytes : 1), counted_bytes = is_counted ? length : 0;
    void *start = NULL;
    pthread_rwlock_wrlock(&lock);
    if (counted_bytes <= free_bytes(card)) start = take_addresses(length);
    if (start && block_count == block_room) {
        size_t room = block_room ? 2 * block_room : 64;
        struct block *more = realloc(blocks, room * sizeof *more);
        if (more) blocks = more, block_room = room;
        else munmap(start, length), start = NULL;
    }
    if (start) {
        size_t at = blocks_before(start);
        memmove(blocks + at + 1, blocks + at, (block_count - at) * sizeof *blocks);
        blocks[at] = (struct block){start, length, counted_bytes, card};
        block_count++;
        card->taken_bytes += counted_bytes;
    }
    pthread_rwlock_unlock(&lock);
    return start;
}

void *take_memory(struct card *card, uint64_t bytes) { return take_block(card, bytes, 1); }
void *take_constants(struct card *card, uint64_t bytes) { return take_block(card, bytes, 0); }

int give_back(void *start) {
    int status = INVALID_VALUE;
    if (!start) return SUCCESS;
    pthread_rwlock_wrlock(&lock);
    size_t after = blocks_before(start);
    if (after && blocks[after - 1].start == (char *)start) {
        struct block block = blocks[after - 1];
        memmove(blocks + after - 1, blocks + after, (block_count - after) * sizeof *blocks);
        block_count--;
        block.card->taken_bytes -= block.counted_bytes;
        munmap(block.start, block.bytes);
        status = SUCCESS;
    }
    pthread_rwlock_unlock(&lock);
    return status;
}

int block_at(const void *address, struct block *found) {
    pthread_rwlock_rdlock(&lock);
    size_t after = blocks_before(address);
    int is_there = after && (const char *)address < blocks[after - 1].start + blocks[after - 1].bytes;
    if (is_there && found) *found = blocks[after - 1];
    pthread_rwlock_unlock(&lock);
    return is_there;
}

/* Pinned memory of the host: its length lies in the page before it. */
void *take_host_memory(uint64_t bytes) {
    char *start = take_addresses(whole_pages(bytes) + PAGE);
    if (!start) return NULL;
    *(uint64_t *)start = whole_pages(bytes) + PAGE;
    return start + PAGE;
}

void give_host_memory_back(void *start) {
    if (start) munmap((char *)start - PAGE, *(uint64_t *)((char *)start - PAGE));
}

/* Zeros, without memory for the pages that lie within. */
static void clear(char *to, uint64_t bytes) {
    char *first = (char *)whole_pages((uint64_t)to), *last = (char *)((uint64_t)(to + bytes) / PAGE * PAGE);
    if (first >= last) {
        memset(to, 0, bytes);
        return;
    }
    memset(to, 0, first - to);
    madvise(first, last - first, MADV_DONTNEED);
    memset(last, 0, to + bytes - last);
}

static int is_kept(const void *to, uint64_t bytes) {
    static long most = -1;
    if (most < 0) most = setting("PLACER_SIMULATION_KEPT_BYTES", 256 << 10);
    return bytes <= (uint64_t)most || !block_at(to, NULL);
}

void copy_bytes(void *to, const void *from, uint64_t bytes) {
    if (is_kept(to, bytes)) memmove(to, from, bytes);
    else clear(to, bytes);
    note_read(from);
}

void fill_bytes(void *to, unsigned value, int width, uint64_t count) {
    uint64_t bytes = width * count;
    if (!value || !is_kept(to, bytes)) {
        if (block_at(to, NULL)) clear(to, bytes);
        else memset(to, 0, bytes);
    } else if (width == 1) memset(to, (int)value, bytes);
    else if (width == 2) for (uint64_t i = 0; i < count; i++) ((uint16_t *)to)[i] = (uint16_t)value;
    else for (uint64_t i = 0; i < count; i++) ((uint32_t *)to)[i] = value;
}
