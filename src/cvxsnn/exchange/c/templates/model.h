/*
 * {{ name }}: a spiking network, written by cvxsnn {{ version }}.
 *
 *     static {{ name }}_state state;
 *     {{ name }}_reset(&state);
 *     for each step of a sequence: {{ name }}_step(&state, input);
 *     {{ "class = " ~ name ~ "_class(&state);" if is_classifier else name ~ "_scores(&state, scores);" }}
 *
 * Scores{{ " and class" if is_classifier }} can be read after any step.
 *
{% if integers %}
 * There are no floating-point numbers. On {{ n_compared }} sequences, all spikes are those of Python{{ " and " ~ n_other ~ " classes differ" if is_classifier }}.
 * Sequences have up to {{ longest }} steps.
 *
 * An input is round({{ "(x - mean) / scale" if scales else "x" }} * 65536){{ ", with" if scales else "." }}
{% for mean, scale in scales %}
 *     mean {{ mean }}, scale {{ scale }} for input {{ loop.index0 }}
{% endfor %}
{% else %}
 * {{ "Inputs are standardised in here. " if scales }}Spikes and their statistics are those of Python, to the bit.
 * Scores are summed in one order, so they are the same on all machines. Python sums in another order: its scores differ
 * by up to {{ NAME }}_TOLERANCE.
{% endif %}
{% if labels %}
 *
 * The classes are
{% for label in labels %}
 *     {{ loop.index0 }}: {{ label }}
{% endfor %}
{% endif %}
 */
#ifndef {{ NAME }}_H
#define {{ NAME }}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define {{ NAME }}_FEATURES {{ n_features }}
#define {{ NAME }}_SCORES {{ n_outputs }}
{% if is_classifier %}
#define {{ NAME }}_CLASSES {{ n_classes }}
{% endif %}
{% if program.n_steps %}
#define {{ NAME }}_STEPS {{ program.n_steps }} /* of every sequence */
{% endif %}
#define {{ NAME }}_FLASH {{ n_bytes }} /* bytes of tables, without code */
#define {{ NAME }}_RAM sizeof({{ name }}_state)
#define {{ NAME }}_STEP_OPERATIONS {{ step_operations }} /* multiplications and additions of one step */
#define {{ NAME }}_SCORE_OPERATIONS {{ score_operations }} /* of one call for scores or the class */
{% if integers %}
#define {{ NAME }}_SCORE_UNIT {{ integers.unit.hex() }} /* a score is its number times this{{ divided }} */
{% else %}
#define {{ NAME }}_TOLERANCE {{ "%.3g" | format(program.tolerance) }} /* largest difference of scores from those of Python */
{% endif %}

/*
 * Inputs are kept in 64 bits, and cut where they, their changes or squares are beyond {{ wide_limit }}{{ ", once standardised" if scales }}.
 * With -D{{ NAME }}_WIDE=0, they take 32 bits, up to {{ narrow_limit }}.
 */
#ifndef {{ NAME }}_WIDE
#define {{ NAME }}_WIDE 1
#endif
#if {{ NAME }}_WIDE
typedef int64_t {{ name }}_value;
#else
typedef int32_t {{ name }}_value;
#endif

/* One sequence: as many as you like can be open at once. */
typedef struct {
    uint32_t steps; /* so far */
{% if has_changes %}
    {{ name }}_value before[{{ n_features }}];
{% endif %}
{% for layer in layers %}
{% if layer.number == 1 or layer.depth > 1 %}
    {{ name ~ "_value" if layer.number == 1 else "uint8_t" }} values_{{ layer.number }}[{{ layer.size }}]; /* {{ layer.depth }} steps of {{ layer.n_rows }} */
{% if layer.depth > 1 %}
    uint32_t head_{{ layer.number }};
{% endif %}
{% endif %}
{% if layer.n_membranes %}
    {{ layer.real }} membranes_{{ layer.number }}[{{ layer.n_membranes }}];
{% endif %}
{% if layer.n_kept %}
    uint8_t spikes_{{ layer.number }}[{{ layer.n_kept }}];
{% endif %}
{% endfor %}
{% if n_numbers %}
    uint32_t numbers[{{ n_numbers }}];
{% endif %}
{% if n_bursts %}
    uint32_t runs[{{ n_bursts }}];
{% endif %}
} {{ name }}_state;

/* Begins a sequence. */
void {{ name }}_reset({{ name }}_state *state);

/*
 * Reads one step. Returns 0, or 1 if an input was {{ "too large and was cut" if integers else "no number or too large, and was replaced by zero or cut" }}{{ ", or if the
 * sequence has had all its steps" if program.n_steps }}.
 */
int {{ name }}_step({{ name }}_state *state, const {{ number }} input[{{ n_features }}]);

/* Writes the scores of the sequence so far. */
void {{ name }}_scores(const {{ name }}_state *state, {{ score }} scores[{{ n_outputs }}]);
{% if is_classifier %}

/* Returns the class of the sequence so far, from 0: the place of its label in the list above. */
int {{ name }}_class(const {{ name }}_state *state);
{% endif %}

#ifdef {{ NAME }}_SELF_TEST
/*
 * Returns how many sums of scores, over the steps of some sequences, differ in any bit from those that are expected: 0
 * on a machine that computes as it should.
 */
int {{ name }}_self_test(void);
#endif

#ifdef __cplusplus
}
#endif

#endif
