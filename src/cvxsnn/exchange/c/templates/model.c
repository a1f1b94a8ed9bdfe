/* Written by cvxsnn {{ version }}: see {{ header }}. */

{% if not integers %}
#include <float.h>
{% endif %}
#include <string.h>
#include "{{ header }}"
{% if not integers %}

#if defined(__FAST_MATH__) || DBL_MANT_DIG != 53 || FLT_MANT_DIG != 24 || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "expected arithmetic of IEEE 754: leave out -ffast-math, use SSE on 32-bit x86, or export with integers"
#endif
{% else %}

#if (-1 >> 1) != -1
#error "expected shifts of negative numbers to keep the sign"
#endif
{% endif %}

#if {{ NAME }}_WIDE
#define LARGEST {{ program.largest }}LL
#else
#define LARGEST {{ narrow_largest }}LL
#endif

{% for table in tables %}
static const {{ table.type }} {{ table.name }}[{{ table.size }}] = {
{{ table.text }}
};
{% endfor %}

/* Returns a number of units of 2^-16 within the limits{{ "" if integers else ", rounded to an even number where two are equally close" }}. */
{% if integers %}
static {{ name }}_value limit(int64_t units, int *is_cut)
{
    if (units >= -LARGEST && units <= LARGEST)
        return ({{ name }}_value)units;
    *is_cut = 1;
    return units > 0 ? LARGEST : -LARGEST;
}
{% if has_squares %}

static {{ name }}_value square({{ name }}_value value, int *is_cut)
{
    uint64_t size = value < 0 ? (uint64_t)-value : (uint64_t)value;
    if (size > UINT32_MAX) {
        *is_cut = 1;
        size = UINT32_MAX;
    }
    size *= size;
    /* To the nearest number of units: no square is halfway between two. */
    return limit((int64_t)((size >> 16) + ((size >> 15) & 1)), is_cut);
}
{% endif %}
{% if layers | selectattr("n_dynamic") | list %}

static int64_t scaled(int64_t sum, int shift)
{
    if (shift <= 0)
        return sum * ((int64_t)1 << -shift);
    return (sum + ((int64_t)1 << (shift - 1))) >> shift;
}
{% endif %}
{% else %}
static {{ name }}_value limit(double units, int *is_cut)
{
    if (!(units >= -(double)LARGEST && units <= (double)LARGEST)) { /* also for NaN */
        *is_cut = 1;
        return units > 0 ? LARGEST : units < 0 ? -LARGEST : 0;
    }
    return ({{ name }}_value)((units + 6755399441055744.0) - 6755399441055744.0);
}
{% if has_squares %}

static {{ name }}_value square({{ name }}_value value, int *is_cut)
{
    return limit((double)value * (double)value / 65536.0, is_cut);
}
{% endif %}
{% endif %}
{% for layer in layers %}
{% for part in layer.sums %}

static {{ part.type }} {{ "recurrent_" if part.suffix.startswith("recurrent") }}sum_{{ layer.number }}(const {{ name }}_state *state, uint32_t number)
{
    {{ part.type }} sum = 0;
    uint32_t tap;
    for (tap = start_{{ part.suffix }}[number]; tap < (uint32_t)start_{{ part.suffix }}[number + 1]; ++tap) {
{% if part.is_ring %}
        uint32_t at = state->head_{{ layer.number }} + place_{{ part.suffix }}[tap];
        if (at >= {{ layer.size }})
            at -= {{ layer.size }};
        sum += ({{ part.type }})weight_{{ part.suffix }}[tap] * state->{{ part.array }}[at];
{% else %}
        sum += ({{ part.type }})weight_{{ part.suffix }}[tap] * state->{{ part.array }}[place_{{ part.suffix }}[tap]];
{% endif %}
    }
    return sum;
}
{% endfor %}
{% endfor %}
{% macro compute(block, layer, spikes, offset) %}
{% set n = layer.number %}
{% if block.kind == "level" %}
    for (i = {{ block.first }}; i < {{ block.last }}; ++i)
        {{ spikes }}[i{{ offset }}] = sum_{{ n }}(state, i) >= level_{{ n }}[i];
{% elif block.kind == "group" %}
    for (group = {{ block.group_first }}, i = {{ block.first }}; group < {{ block.group_last }}; ++group) {
        const uint32_t end = group_{{ n }}[group];
        uint32_t winner = i;
        int64_t largest = 0;
        uint32_t rival;
        for (rival = i; rival < end; ++rival) {
            const int64_t sum = (int64_t)sum_{{ n }}(state, rival) * ((int64_t)1 << shift_{{ n }}[rival]);
            if (rival == i || sum > largest) {
                largest = sum;
                winner = rival;
            }
        }
        for (; i < end; ++i)
            {{ spikes }}[i{{ offset }}] = i == winner;
    }
{% endif %}
{% endmacro %}

void {{ name }}_reset({{ name }}_state *state)
{
{% if starts_somewhere %}
    uint32_t i;
{% endif %}
    memset(state, 0, sizeof *state);
{% for layer in layers %}
{% if layer.starts_membranes %}
    for (i = 0; i < {{ layer.n_membranes }}; ++i)
        state->membranes_{{ layer.number }}[i] = start_membranes_{{ layer.number }}[i];
{% endif %}
{% if layer.starts_spikes %}
    for (i = 0; i < {{ layer.n_dynamic }}; ++i)
        state->spikes_{{ layer.number }}[i + {{ layer.dynamic_kept }}] = start_spikes_{{ layer.number }}[i];
{% endif %}
{% endfor %}
}

int {{ name }}_step({{ name }}_state *state, const {{ number }} input[{{ n_features }}])
{
    {{ name }}_value now[{{ n_features }}];
    {{ name }}_value *read = state->values_1;
    int is_cut = 0;
    uint32_t i;
{% if has_eager_groups %}
    uint32_t group;
{% endif %}
{% if n_windows %}
    uint32_t window;
    if (state->steps >= {{ NAME }}_STEPS)
        return 1;
    window = (uint32_t)((uint64_t)state->steps * {{ n_windows }} / {{ NAME }}_STEPS);
{% endif %}
    ++state->steps;
{% if layers[0].depth > 1 %}
    state->head_1 = (state->head_1 == 0 ? {{ layers[0].size }} : state->head_1) - {{ layers[0].n_rows }};
    read += state->head_1;
{% endif %}
    for (i = 0; i < {{ n_features }}; ++i)
{% if integers %}
        now[i] = limit(input[i], &is_cut);
{% elif scales %}
        now[i] = limit((input[i] - mean[i]) / scale[i] * 65536.0, &is_cut);
{% else %}
        now[i] = limit(input[i] * 65536.0, &is_cut);
{% endif %}
{% for view in views %}
    for (i = {{ view.first }}; i < {{ view.last }}; ++i)
{% if view.name == "values" %}
        read[i] = now[feature[i]];
{% elif view.name == "squares" %}
        read[i] = square(now[feature[i]], &is_cut);
{% else %}
{% set wide = "(int64_t)" if integers else "(double)" %}
{% set change = "limit(" ~ wide ~ "now[feature[i]] - " ~ wide ~ "state->before[feature[i]], &is_cut)" %}
        read[i] = state->steps == 1 ? 0 : {{ change if view.name == "changes" else "square(" ~ change ~ ", &is_cut)" }};
{% endif %}
{% endfor %}
{% if has_changes %}
    memcpy(state->before, now, sizeof now);
{% endif %}
{% for layer in layers %}
{% set n = layer.number %}
{% if n > 1 and layer.depth > 1 %}
    state->head_{{ n }} = (state->head_{{ n }} == 0 ? {{ layer.size }} : state->head_{{ n }}) - {{ layer.n_rows }};
    memcpy(state->values_{{ n }} + state->head_{{ n }}, state->spikes_{{ n - 1 }}, {{ layer.n_rows }});
{% endif %}
{% for block in layer.blocks if not block.is_lazy %}
{{ compute(block, layer, "state->spikes_" ~ n, block.offset) -}}
{% if block.kind == "membrane" %}
    for (i = 0; i < {{ layer.n_membranes }}; ++i) {
        uint8_t *spike = &state->spikes_{{ n }}[i + {{ layer.dynamic_kept }}];
{% if integers %}
        const int64_t drive = scaled(sum_{{ n }}(state, i + {{ block.first }}), shift_{{ n }}[i]) + bias_{{ n }}[i];
        const int64_t leaked = ((int64_t)state->membranes_{{ n }}[i] * decay_{{ n }}[i] + {{ 2 ** 29 }}) >> 30;
        int64_t membrane = leaked + drive;
        if (*spike)
            membrane -= threshold_{{ n }}[i];
        membrane = membrane > INT32_MAX ? INT32_MAX : membrane < -INT32_MAX ? -INT32_MAX : membrane;
        state->membranes_{{ n }}[i] = (int32_t)membrane;
{% else %}
        const {{ layer.real }} sum = ({{ layer.real }})sum_{{ n }}(state, i + {{ block.first }});
        const {{ layer.real }} drive = sum * unit_{{ n }}[i] + bias_{{ n }}[i]; /* a unit is a power of two */
        /* Through memory, so that no compiler fuses product and sum, whatever its flags. */
        const volatile {{ layer.real }} leaked = state->membranes_{{ n }}[i] * decay_{{ n }}[i];
        {{ layer.real }} membrane = leaked + drive;
        if (*spike)
            membrane -= threshold_{{ n }}[i];
        state->membranes_{{ n }}[i] = membrane;
{% endif %}
        *spike = membrane {{ layer.fires }} 0;
    }
{% elif block.kind == "recurrent" %}
    {
        uint8_t fired[{{ block.last - block.first }}];
        for (i = 0; i < {{ block.last - block.first }}; ++i) {
{% if integers %}
            const int64_t feedback = scaled(recurrent_sum_{{ n }}(state, i), recurrent_shift_{{ n }}[i]);
            fired[i] = scaled(sum_{{ n }}(state, i), shift_{{ n }}[i]) + bias_{{ n }}[i] + feedback >= 0;
{% else %}
            const {{ layer.real }} sum = ({{ layer.real }})sum_{{ n }}(state, i);
            const {{ layer.real }} drive = sum * unit_{{ n }}[i] + bias_{{ n }}[i]; /* a unit is a power of two */
            const {{ layer.real }} feedback = ({{ layer.real }})recurrent_sum_{{ n }}(state, i) * recurrent_unit_{{ n }}[i];
            fired[i] = drive + feedback >= 0;
{% endif %}
        }
        memcpy(state->spikes_{{ n }}, fired, sizeof fired);
    }
{% endif %}
{% endfor %}
{% endfor %}
{% for segment in segments if segment.statistic != "last" %}
    for (i = {{ segment.first }}; i < {{ segment.last }}; ++i) {
        const uint32_t fired = state->spikes_{{ layers | length }}[neuron[i]];
{% if segment.statistic == "burst" %}
        state->runs[i - {{ segment.first }}] = fired ? state->runs[i - {{ segment.first }}] + 1 : 0;
        if (state->runs[i - {{ segment.first }}] > state->numbers[i])
            state->numbers[i] = state->runs[i - {{ segment.first }}];
{% elif segment.statistic == "first" %}
        if (fired && state->numbers[i] == 0)
            state->numbers[i] = state->steps;
{% elif segment.statistic == "ever" %}
        state->numbers[i] |= fired;
{% elif n_windows %}
        state->numbers[i] += window == window_of[i] ? fired : 0;
{% else %}
        state->numbers[i] += fired;
{% endif %}
    }
{% endfor %}
    return is_cut;
}

static void add({{ score }} *scores, {{ score }} entry, uint32_t column)
{
    uint32_t i;
    if (entry != 0)
{% if integers %}
        for (i = 0; i < {{ n_outputs }}; ++i)
            scores[i] += entry * readout[{{ n_outputs }} * column + i];
{% else %}
        for (i = 0; i < {{ n_outputs }}; ++i) {
            /* Through memory, so that no compiler fuses product and sum, whatever its flags. */
            const volatile double product = entry * readout[{{ n_outputs }} * column + i];
            scores[i] += product;
        }
{% endif %}
}
{% if integers and has_root %}

static int64_t root(uint64_t number)
{
    uint64_t result = 0, bit;
    for (bit = (uint64_t)1 << 31; bit != 0; bit >>= 1)
        if ((result | bit) * (result | bit) <= number)
            result |= bit;
    return (int64_t)result;
}
{% elif has_root %}

/* Returns the square root of a number above zero, rounded to the nearest, as IEEE 754 has it: bit by bit. */
static double root(double number)
{
    uint64_t bits, rest, bit, sum = 0, result = 0;
    int32_t exponent;
    memcpy(&bits, &number, sizeof bits);
    exponent = (int32_t)(bits >> 52) - 1023;
    rest = ((bits & (((uint64_t)1 << 52) - 1)) | ((uint64_t)1 << 52)) << (1 + (exponent & 1));
    for (bit = (uint64_t)1 << 53; bit != 0; bit >>= 1) {
        if (sum + bit <= rest) {
            rest -= sum + bit;
            sum += 2 * bit;
            result += bit;
        }
        rest <<= 1;
    }
    result += rest != 0 ? result & 1 : 0;
    bits = (result >> 1) + ((uint64_t)((exponent - (exponent & 1)) / 2 + 1022) << 52);
    memcpy(&number, &bits, sizeof bits);
    return number;
}
{% endif %}

void {{ name }}_scores(const {{ name }}_state *state, {{ score }} scores[{{ n_outputs }}])
{
{% if n_lazy %}
    uint8_t lazy[{{ n_lazy }}];
{% endif %}
{% if has_lazy_groups %}
    uint32_t group;
{% endif %}
    uint32_t i;
{% if has_shares and integers and not n_windows %}
    const int64_t steps = state->steps;
{% elif has_shares and not integers %}
    const double share = {{ ("(double)" ~ n_windows ~ " / " ~ NAME ~ "_STEPS") if n_windows else "state->steps == 0 ? 0 : 1.0 / state->steps" }};
{% endif %}
{% for block in layers[-1].blocks if block.is_lazy %}
{{ compute(block, layers[-1], "lazy", "") -}}
{% endfor %}
    for (i = 0; i < {{ n_outputs }}; ++i)
        scores[i] = {{ "(int64_t)" if integers }}intercept[i]{{ steps_factor }};
{% for segment in segments %}
    for (i = {{ segment.first }}; i < {{ segment.last }}; ++i)
{% set whole = "state->numbers[i]" %}
{% if segment.statistic == "last" %}
{% set whole = "lazy[neuron[i]]" if segment.is_lazy else "state->spikes_" ~ (layers | length) ~ "[neuron[i]]" %}
{% elif segment.statistic == "first" %}
{% set whole = "(state->numbers[i] == 0 ? 0 : state->steps + 1 - state->numbers[i])" %}
{% endif %}
{% if integers %}
{% if segment.statistic == "root" %}
        add(scores, root((uint64_t)state->numbers[i] * state->steps << {{ 2 * integers.root_bits }}), i);
{% elif segment.statistic in ("last", "ever") and has_shares %}
        add(scores, {{ whole }} * steps{{ factor }}, i);
{% else %}
        add(scores, {{ "(int64_t)" }}{{ whole }}{{ factor }}{{ (" * " ~ n_windows) if n_windows }}, i);
{% endif %}
{% elif segment.statistic == "root" %}
        add(scores, state->numbers[i] == 0 ? 0 : root(state->numbers[i] * share), i);
{% elif segment.statistic in ("last", "ever") %}
        add(scores, {{ whole }}, i);
{% else %}
        add(scores, {{ whole }} * share, i);
{% endif %}
{% endfor %}
}
{% if is_classifier %}

int {{ name }}_class(const {{ name }}_state *state)
{
    {{ score }} scores[{{ n_outputs }}];
{% if n_outputs > 1 %}
    int best = 0;
    int i;
{% endif %}
    {{ name }}_scores(state, scores);
{% if n_outputs == 1 %}
    return scores[0] > 0;
{% else %}
    for (i = 1; i < {{ n_outputs }}; ++i)
        if (scores[i] > scores[best])
            best = i;
    return best;
{% endif %}
}
{% endif %}

#ifdef {{ NAME }}_SELF_TEST
int {{ name }}_self_test(void)
{
    static const {{ number }} inputs[{{ test.size }}] = {
{{ test.inputs }}
    };
    static const {{ score }} expected[{{ test.lengths | length }}][{{ n_outputs }}] = {
{{ test.scores }}
    };
    static const uint32_t lengths[{{ test.lengths | length }}] = { {{ test.lengths | join(", ") }} };
    const {{ number }} *input = inputs;
    int n_wrong = 0;
    uint32_t sequence, step, i;
    for (sequence = 0; sequence < {{ test.lengths | length }}; ++sequence) {
        {{ name }}_state state;
        {{ score }} scores[{{ n_outputs }}], sums[{{ n_outputs }}] = { 0 };
        {{ name }}_reset(&state);
        for (step = 0; step < lengths[sequence]; ++step, input += {{ n_features }}) {
            {{ name }}_step(&state, input);
{% if n_windows %}
            if (state.steps < {{ NAME }}_STEPS)
                continue;
{% endif %}
            {{ name }}_scores(&state, scores);
            for (i = 0; i < {{ n_outputs }}; ++i)
                sums[i] += scores[i];
        }
        for (i = 0; i < {{ n_outputs }}; ++i)
            n_wrong += sums[i] != expected[sequence][i];
    }
    return n_wrong;
}
#endif

#ifdef CVXSNN_MAIN
/* A program: each line of the standard input is a step, an empty line ends a sequence, and its scores are printed. */
#include <stdio.h>
#include <stdlib.h>
{% if integers %}

static int units(int place, double value, int32_t *result)
{
{% if scales %}
    static const double mean[{{ n_features }}] = { {{ mean }} };
    static const double scale[{{ n_features }}] = { {{ scale }} };
    value = (value - mean[place]) / scale[place] * 65536.0;
{% else %}
    (void)place;
    value *= 65536.0;
{% endif %}
    if (!(value >= -2147483647.0 && value <= 2147483647.0))
        return 1;
    *result = (int32_t)((value + 6755399441055744.0) - 6755399441055744.0);
    return 0;
}
{% endif %}

static int fail(const char *message)
{
    fprintf(stderr, "expected %d numbers a line, got %s\n", {{ n_features }}, message);
    return EXIT_FAILURE;
}

static void print_scores(const {{ name }}_state *state)
{
    {{ score }} scores[{{ n_outputs }}];
    int i;
    {{ name }}_scores(state, scores);
    for (i = 0; i < {{ n_outputs }}; ++i)
        printf("%s%.9g", i == 0 ? "" : " ", {{ print_score }});
    putchar('\n');
    fflush(stdout);
}

int main(void)
{
    static {{ name }}_state state;
    {{ number }} input[{{ n_features }}];
    char word[64], *end;
    size_t length = 0;
    int n_read = 0, letter;
    {{ name }}_reset(&state);
    do {
        letter = getchar();
        if (letter != ' ' && letter != '\t' && letter != '\r' && letter != '\n' && letter != EOF) {
            if (length + 1 == sizeof word)
                return fail("a word that is too long");
            word[length++] = (char)letter;
            continue;
        }
        if (length > 0) {
            double value;
            word[length] = '\0';
            value = strtod(word, &end);
            if (*end != '\0' || n_read == {{ n_features }})
                return fail(*end != '\0' ? word : "more");
{% if integers %}
            if (units(n_read, value, &input[n_read]))
                return fail("one that is no number or too large");
            ++n_read;
{% else %}
            input[n_read++] = value;
{% endif %}
            length = 0;
        }
        if ((letter == '\n' || letter == EOF) && n_read > 0) {
            if (n_read < {{ n_features }})
                return fail("fewer");
            if ({{ name }}_step(&state, input))
                return fail("{{ "one that is no number or too large, or too many lines" if n_windows else "one that is no number or too large" }}");
            n_read = 0;
            if (letter == '\n')
                continue;
        }
        if ((letter == '\n' || letter == EOF) && state.steps > 0) {
            print_scores(&state);
            {{ name }}_reset(&state);
        }
    } while (letter != EOF);
    return 0;
}
#endif
