/* A kernel is launched: it is counted, and computed where programs need its values.
 *
 * What the host reads back decides shapes, counts and branches: whether variables have values, how
 * many ids are unique, how large the gradient of a mean is.  The kernels that make such values are
 * computed here, found by their names; all others do nothing, and their results are zeros. */
#include "kernels.h"

#include <stdio.h>

size_t width_of(char type) {
    switch (type) {
    case 'b': case 'a': case 'h': case 'c': return 1;
    case 's': case 't': return 2;
    case 'i': case 'j': case 'f': return 4;
    case 'l': case 'm': case 'x': case 'y': case 'd': return 8;
    default: return 0;
    }
}

int64_t element(const void *from, char type, size_t index) {
    switch (type) {
    case 'b': case 'h': return ((const uint8_t *)from)[index];
    case 'a': case 'c': return ((const int8_t *)from)[index];
    case 's': return ((const int16_t *)from)[index];
    case 't': return ((const uint16_t *)from)[index];
    case 'i': return ((const int32_t *)from)[index];
    case 'j': return ((const uint32_t *)from)[index];
    case 'f': return (int64_t)((const float *)from)[index];
    case 'd': return (int64_t)((const double *)from)[index];
    default: return ((const int64_t *)from)[index];
    }
}

void set_element(void *to, char type, size_t index, int64_t value) {
    switch (type) {
    case 'b': case 'h': case 'a': case 'c': ((uint8_t *)to)[index] = (uint8_t)value; break;
    case 's': case 't': ((uint16_t *)to)[index] = (uint16_t)value; break;
    case 'i': case 'j': ((uint32_t *)to)[index] = (uint32_t)value; break;
    case 'f': ((float *)to)[index] = (float)value; break;
    case 'd': ((double *)to)[index] = (double)value; break;
    default: ((int64_t *)to)[index] = value;
    }
}

int is_small(uint64_t bytes) {
    static long most;
    if (!most) most = setting("PLACER_SIMULATION_KEPT_BYTES", 256 << 10) + 1;
    return bytes < (uint64_t)most;
}

int addresses_in(const void *from, int words, char **found, int wanted) {
    int count = 0;
    for (int i = 0; i < words && count < wanted; i++) {
        char *word = ((char *const *)from)[i];
        if (block_at(word, NULL)) found[count++] = word;
    }
    return count;
}

static const struct rule *rule_of(const char *name, const char **after) {
    const struct rule *const TABLES[] = {MOVING_RULES, TENSOR_RULES, SORTING_RULES, ELEMENTWISE_RULES};
    for (int table = 0; table < 4; table++)
        for (const struct rule *rule = TABLES[table]; rule->compute; rule++) {
            const char *at = name;
            for (int part = 0; at && part < 3 && rule->parts[part]; part++) {
                at = strstr(at, rule->parts[part]);
                if (at) at += strlen(rule->parts[part]);
                if (at && !part) *after = at;
            }
            if (at) return rule;
        }
    return NULL;
}

/* What is known of the kernels that were launched, by the address of their names. */
static struct { const char *name, *after; const struct rule *rule; } known[1 << 12];

void launch(const char *name, unsigned blocks, void **arguments) {
    static int logs = -1;
    note_thread();
    note_launch(current_card());
    if (logs < 0) logs = setting("PLACER_SIMULATION_LOG", 0) > 0;
    if (logs) fprintf(stderr, "kernel %s\n", name ? name : "?");
    if (!name) return;
    size_t slot = (size_t)((uint64_t)name >> 3) % (sizeof known / sizeof *known);
    const char *after = NULL;
    const struct rule *rule = NULL;
    if (known[slot].name == name) rule = known[slot].rule, after = known[slot].after;
    else {
        rule = rule_of(name, &after);
        known[slot].name = NULL; /* another thread may look meanwhile */
        known[slot].rule = rule;
        known[slot].after = after;
        known[slot].name = name;
    }
    if (rule && arguments) rule->compute(name, after, blocks, arguments);
}
