/* Keeps the record of record.h: who holds what, the peak of each card, and what it refused.
 *
 * What TensorFlow's allocator hands out is known from allocator.c, with the op that asked.  Blocks
 * that the driver hands out otherwise (cuda_malloc_async, for one) are holdings as they are. */
#define _GNU_SOURCE
#include "record.h"
#include "allocator.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define INDEX (MOST_LIVE * 2)
#define NAMES (1u << 16)

static struct record *record;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double began;
static uint32_t order;
static struct index {
    uint32_t of_address[INDEX];  /* 1 + place in `live`, by address */
    struct { uint64_t hash; uint32_t at; } of_name[NAMES];
} *index_;

static double now(int clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void *anonymous(size_t bytes) {
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) abort();
    return start;
}

/* A file in the folder that was asked for, else memory that nobody else reads. */
static struct record *open_record(void) {
    const char *folder = getenv("PLACER_SIMULATION_RECORDS");
    char path[4096];
    if (!folder || !*folder) return anonymous(sizeof *record);
    snprintf(path, sizeof path, "%s/%d.record", folder, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return anonymous(sizeof *record);
    void *start = MAP_FAILED;
    if (!ftruncate(file, sizeof *record))
        start = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return start == MAP_FAILED ? anonymous(sizeof *record) : start;
}

/* The child of a fork begins a record of its own. */
static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    record = NULL;
}

static void begin(void) {
    static int watches_forks;
    pthread_mutex_lock(&lock);
    if (record) return;
    if (!watches_forks) watches_forks = 1, pthread_atfork(NULL, NULL, forget);
    index_ = anonymous(sizeof *index_);
    record = open_record();
    began = now(CLOCK_MONOTONIC);
    record->process = (uint32_t)getpid();
    record->cards = (uint32_t)machine_cards();
    record->started = now(CLOCK_REALTIME);
    record->names_end = 1; /* name 0 is none */
    record->magic = RECORD_MAGIC;
}

static void end(void) { pthread_mutex_unlock(&lock); }

/* Where a name lies in `names`; the same name has one place. */
static uint32_t name_of(const char *text, uint32_t length) {
    uint64_t hash = 1469598103934665603ull; /* FNV-1a */
    if (!length) return 0;
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 1099511628211ull;
    uint32_t slot = (uint32_t)(hash >> 20) % NAMES;
    for (int tries = 0; tries < 64; tries++, slot = (slot + 1) % NAMES) {
        if (index_->of_name[slot].at && index_->of_name[slot].hash == hash) return index_->of_name[slot].at;
        if (index_->of_name[slot].at) continue;
        if (record->names_end + length + 1 > NAME_BYTES) return 0;
        index_->of_name[slot].hash = hash;
        index_->of_name[slot].at = record->names_end;
        memcpy(record->names + record->names_end, text, length);
        record->names_end += length + 1;
        return index_->of_name[slot].at;
    }
    return 0;
}

static uint32_t current_name(void) {
    const char *text;
    uint32_t length = (uint32_t)current_op(&text);
    return name_of(text, length);
}

static uint32_t home_of(uint64_t address) { return (uint32_t)((address >> 8) * 0x9E3779B97F4A7C15ull >> 40) % INDEX; }

/* The slot of an address in the index, or the free one where it would be. */
static uint32_t slot_of(uint64_t address) {
    uint32_t slot = home_of(address);
    while (index_->of_address[slot] && record->live[index_->of_address[slot] - 1].address != address) slot = (slot + 1) % INDEX;
    return slot;
}

/* Frees a slot and closes the gap: what lies further than it need be moves up. */
static void free_slot(uint32_t slot) {
    for (uint32_t next = slot;;) {
        index_->of_address[slot] = 0;
        for (;;) {
            next = (next + 1) % INDEX;
            if (!index_->of_address[next]) return;
            uint32_t home = home_of(record->live[index_->of_address[next] - 1].address);
            int may_stay = slot <= next ? slot < home && home <= next : slot < home || home <= next;
            if (!may_stay) break;
        }
        index_->of_address[slot] = index_->of_address[next];
        slot = next;
    }
}

static void write_moment(struct moment *moment, uint32_t card) {
    moment->count = 0;
    for (uint32_t i = 0; i < record->live_count && moment->count < MOST_HELD; i++)
        if (record->live[i].card == card) moment->held[moment->count++] = record->live[i];
}

/* The peak is written down when something of it is about to be given back. */
static void keep_peak(struct card_record *of, uint32_t card) {
    if (!of->is_peak_now) return;
    write_moment(&of->peak, card);
    of->is_peak_now = 0;
}

static void hold(const struct card *card, uint64_t address, uint64_t bytes, uint64_t asked) {
    struct card_record *of = &record->card[card->index];
    if (record->live_count == MOST_LIVE) {
        record->lost++;
        return;
    }
    uint32_t name = current_name();
    record->live[record->live_count] = (struct holding){address, bytes, asked, name, (uint32_t)card->index, ++order, 0};
    index_->of_address[slot_of(address)] = ++record->live_count;
    of->in_use_bytes += bytes;
    if (of->in_use_bytes > of->peak_bytes) {
        of->peak_bytes = of->in_use_bytes;
        of->peak_seconds = now(CLOCK_MONOTONIC) - began;
        of->peak_name = name;
        of->peak_launches = of->launches;
        of->is_peak_now = 1;
    }
}

void note_given_back(const void *address) {
    struct block block;
    if (!address || !block_at(address, &block)) return;
    begin();
    uint32_t slot = slot_of((uint64_t)address), place = index_->of_address[slot];
    record->card[block.card->index].taken_bytes = block.card->taken_bytes;
    if (place) {
        struct holding *held = &record->live[place - 1], *last = &record->live[record->live_count - 1];
        struct card_record *of = &record->card[held->card];
        keep_peak(of, held->card);
        of->in_use_bytes -= held->bytes;
        free_slot(slot);
        if (held != last) {
            index_->of_address[slot_of(last->address)] = place;
            *held = *last;
        }
        record->live_count--;
    }
    end();
}

void note_taken(const struct card *card, const void *address, uint64_t bytes) {
    begin();
    struct card_record *of = &record->card[card->index];
    of->taken_bytes = card->taken_bytes;
    if (of->taken_bytes > of->most_taken_bytes) of->most_taken_bytes = of->taken_bytes;
    if (!is_taking_region()) hold(card, (uint64_t)address, bytes, bytes);
    end();
}

void note_part(const void *address, uint64_t bytes, uint64_t asked) {
    struct block block;
    if (!block_at(address, &block)) return;
    begin();
    hold(block.card, (uint64_t)address, bytes, asked);
    end();
}

static void refuse(const struct card *card, uint64_t asked) {
    struct card_record *of = &record->card[card->index];
    of->refusals++;
    of->refused.asked_bytes = asked;
    of->refused.in_use_bytes = of->in_use_bytes;
    of->refused.seconds = now(CLOCK_MONOTONIC) - began;
    of->refused.name = current_name();
    of->refused.launches = of->launches;
    write_moment(&of->refused, (uint32_t)card->index);
}

void note_refused(const struct card *card, uint64_t asked) {
    begin();
    if (!is_taking_region()) refuse(card, asked);
    end();
}

void note_part_refused(const struct card *card, uint64_t asked) {
    begin();
    refuse(card, asked);
    end();
}

/* What was read back last: the op that made it, for which a program may wait in vain. */
void note_read(const void *address) {
    if (!block_at(address, NULL)) return;
    begin();
    uint32_t place = index_->of_address[slot_of((uint64_t)address)];
    record->reads++;
    if (place) record->last_read_name = record->live[place - 1].name;
    end();
}

/* Gives what lies at an address another name, now and where it was written down: a variable's, which
 * only Python knows (hook/sitecustomize.py). */
void placer_name_holding(const void *address, const char *text) {
    begin();
    uint32_t place = index_->of_address[slot_of((uint64_t)address)];
    uint32_t name = place ? name_of(text, (uint32_t)strlen(text)) : 0;
    if (name) {
        struct holding *held = &record->live[place - 1];
        struct card_record *of = &record->card[held->card];
        struct moment *moments[] = {&of->peak, &of->refused};
        held->name = name;
        for (int which = 0; which < 2; which++)
            for (uint32_t i = 0; i < moments[which]->count; i++)
                if (moments[which]->held[i].order == held->order) moments[which]->held[i].name = name;
    }
    end();
}

uint64_t asked_bytes_at(const void *address) {
    begin();
    uint32_t place = index_->of_address[slot_of((uint64_t)address)];
    uint64_t bytes = place ? record->live[place - 1].asked_bytes : 0;
    end();
    return bytes;
}

void note_launch(const struct card *card) {
    begin();
    struct card_record *of = &record->card[card->index];
    uint32_t name = current_name();
    of->launches++;
    if (name) of->last_name = name;
    end();
}
