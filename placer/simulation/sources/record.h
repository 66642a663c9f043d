/* What the memory of the cards was used for, in a file that another process can read at any time,
 * also after this one was killed: PLACER_SIMULATION_RECORDS names a folder, and each process writes
 * one file there.  placer/simulation/records.py reads it: both know this layout. */
#ifndef RECORD_H
#define RECORD_H

#include "simulation.h"

#define RECORD_MAGIC 0x31444353u /* changes with the layout */
#define MOST_LIVE (1u << 18)
#define MOST_HELD (1u << 15)
#define NAME_BYTES (8u << 20)

struct holding {            /* a part of a card's memory that is in use */
    uint64_t address, bytes, asked_bytes;
    uint32_t name;          /* the op that asked for it, a place in `names`; 0 if not known */
    uint32_t card, order, padding;
};

struct moment {             /* what a card held when it held most, or when it had no room */
    uint64_t in_use_bytes, asked_bytes;
    double seconds;         /* since the process began to use the cards */
    uint32_t name, launches, count, padding;
    struct holding held[MOST_HELD];
};

struct card_record {
    uint64_t in_use_bytes, peak_bytes, taken_bytes, most_taken_bytes;
    double peak_seconds;
    uint32_t refusals, launches, last_name, peak_name, peak_launches, is_peak_now;
    struct moment peak, refused;
};

struct record {
    uint32_t magic, process, cards, live_count;
    double started;         /* seconds since 1970 */
    uint32_t names_end, last_read_name, reads, lost;
    struct holding live[MOST_LIVE];
    char names[NAME_BYTES];
    struct card_record card[MOST_CARDS];
};

#endif
