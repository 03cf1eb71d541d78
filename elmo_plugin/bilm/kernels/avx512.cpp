// LSTM layers over packed sequences on processors with AVX-512; avx512_kernel.py calls it.
//
// Everything here needs AVX-512 F, BW, DQ and VL. What only some of these processors have, AVX512_BF16 and
// AVX512_VNNI, is written in assembly, so that the compiler uses it nowhere else: float32 runs without it. With
// an assembler that does not know them, setup.py defines ELMO_WITHOUT_BFLOAT16 and ELMO_WITHOUT_INT8.
//
// Products are made panel by panel. A panel is 64 columns of a matrix, four vectors of 16: for the gates the
// i, g, f and o of 16 cells, so that what a product leaves in registers becomes cells and hidden values without
// a detour through memory. Within a panel, weights lie in the order in which they are read.

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

constexpr int LANES = 16;
constexpr int VECTORS = 4;
constexpr int PANEL = LANES * VECTORS;
// 6 rows of 4 vectors are 24 of 32 registers.
constexpr int ROWS = 6;

// ---------------------------------------------------------------------------------------------------- types

struct Float32 {
    using Element = float;
    static constexpr int GROUP = 1;  // columns of the left matrix that one multiplication takes
    using Sum = __m512;
    static Sum zero() { return _mm512_setzero_ps(); }
    static Sum multiply_add(Sum sum, const float* left, __m512i weight) {
        return _mm512_fmadd_ps(_mm512_set1_ps(*left), _mm512_castsi512_ps(weight), sum);
    }
};

#ifndef ELMO_WITHOUT_BFLOAT16
struct BFloat16 {
    using Element = uint16_t;
    static constexpr int GROUP = 2;
    using Sum = __m512;
    static Sum zero() { return _mm512_setzero_ps(); }
    static Sum multiply_add(Sum sum, const uint16_t* left, __m512i weight) {
        int32_t pair;
        std::memcpy(&pair, left, sizeof pair);
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32(pair)), "v"(weight));
        return sum;
    }
    static __m256i round(__m512 values) {
        __m256i rounded;
        asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(values));
        return rounded;
    }
};
#endif

#ifndef ELMO_WITHOUT_INT8
struct Int8 {
    using Element = uint8_t;
    static constexpr int GROUP = 4;
    using Sum = __m512i;
    static Sum zero() { return _mm512_setzero_si512(); }
    static Sum multiply_add(Sum sum, const uint8_t* left, __m512i weight) {
        int32_t four;
        std::memcpy(&four, left, sizeof four);
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi32(four)), "v"(weight));
        return sum;
    }
};
#endif

// A matrix in panels. `scales` and `offsets` are of int8: a column's factor, and 128 times its sum.
struct Matrix {
    const void* panels;
    const float* scales;
    const int32_t* offsets;
    int64_t depth;  // rows, a multiple of GROUP
};

// Rows to be multiplied, lowered to the type of the weights; of int8 with the factor of each row.
template <typename Type>
struct Rows {
    std::vector<typename Type::Element> values;
    std::vector<float> scales;
    int64_t depth = 0;

    void resize(int64_t num_rows, int64_t new_depth) {
        depth = new_depth;
        values.resize(num_rows * depth);
        scales.resize(num_rows);
    }
    const typename Type::Element* row(int64_t number) const { return values.data() + number * depth; }
};

// ------------------------------------------------------------------------------------------------- products

template <typename Type, int NUM_ROWS>
inline __attribute__((always_inline)) void multiply(
    const Rows<Type>& left, int64_t row, const Matrix& right, int64_t panel, __m512 (&result)[NUM_ROWS][VECTORS]
) {
    using Element = typename Type::Element;
    typename Type::Sum sums[NUM_ROWS][VECTORS];
    for (int r = 0; r < NUM_ROWS; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = Type::zero();
    const int64_t depth = right.depth;
    const Element* weights = static_cast<const Element*>(right.panels) + panel * depth * PANEL;
    const Element* rows[NUM_ROWS];
    for (int r = 0; r < NUM_ROWS; r++) rows[r] = left.row(row + r);
    for (int64_t k = 0; k < depth; k += Type::GROUP) {
        __m512i weight[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            weight[v] = _mm512_loadu_si512(weights + (k * VECTORS + v * Type::GROUP) * LANES);
        for (int r = 0; r < NUM_ROWS; r++)
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = Type::multiply_add(sums[r][v], rows[r] + k, weight[v]);
    }
    for (int r = 0; r < NUM_ROWS; r++)
        for (int v = 0; v < VECTORS; v++) {
            if constexpr (Type::GROUP == 4) {
                const int64_t column = panel * PANEL + v * LANES;
                // Rows have 128 added to be unsigned. Up to 66,000 of them, no sum is too large.
                const __m512i sum = _mm512_sub_epi32(sums[r][v], _mm512_loadu_si512(right.offsets + column));
                const __m512 scale = _mm512_mul_ps(
                    _mm512_set1_ps(left.scales[row + r]), _mm512_loadu_ps(right.scales + column)
                );
                result[r][v] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
            } else {
                result[r][v] = sums[r][v];
            }
        }
}

// Calls `function<n>(first row)` for tiles of at most ROWS rows.
template <typename Function>
inline void for_tiles(int64_t num_rows, const Function& function) {
    int64_t row = 0;
    for (; row + ROWS <= num_rows; row += ROWS) function(row, std::integral_constant<int, ROWS>());
    switch (num_rows - row) {
        case 5: function(row, std::integral_constant<int, 5>()); break;
        case 4: function(row, std::integral_constant<int, 4>()); break;
        case 3: function(row, std::integral_constant<int, 3>()); break;
        case 2: function(row, std::integral_constant<int, 2>()); break;
        case 1: function(row, std::integral_constant<int, 1>()); break;
    }
}

// ------------------------------------------------------------------------------------------------- lowering

inline uint16_t to_bfloat16(float value) {
    if (std::isnan(value)) return 0x7FC0;  // rounding could carry into the exponent
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// How a row or column becomes 8-bit integers. Values that are not finite have no integers: their scale is NaN, and
// so is every product with them, as in the reference.
struct Quantization {
    float factor, scale;
    explicit Quantization(float largest) : factor(127.0f / largest), scale(largest / 127.0f) {
        if (!std::isfinite(factor)) factor = 0;  // also where all values are zeros or nearly so
        if (!std::isfinite(largest)) scale = std::numeric_limits<float>::quiet_NaN();
    }
};

// The magnitudes of floats are ordered as unsigned integers are, infinity after all numbers and NaN after infinity.
inline uint32_t magnitude(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits & 0x7FFFFFFF;
}

inline float from_magnitude(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename Type>
void lower(const float* source, int64_t width, Rows<Type>& rows, int64_t number) {
    typename Type::Element* target = rows.values.data() + number * rows.depth;
    int64_t k = 0;
    if constexpr (Type::GROUP == 1) {
        std::memcpy(target, source, width * sizeof(float));
        k = width;
    } else if constexpr (Type::GROUP == 2) {
        for (; k + LANES <= width; k += LANES)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + k), Type::round(_mm512_loadu_ps(source + k)));
        for (; k < width; k++) target[k] = to_bfloat16(source[k]);
    } else {
        __m512i magnitudes = _mm512_setzero_si512();
        for (; k + LANES <= width; k += LANES)
            magnitudes = _mm512_max_epu32(
                magnitudes, _mm512_castps_si512(_mm512_abs_ps(_mm512_loadu_ps(source + k)))
            );
        uint32_t largest = _mm512_reduce_max_epu32(magnitudes);
        for (; k < width; k++) largest = std::max(largest, magnitude(source[k]));
        const Quantization quantization(from_magnitude(largest));
        const float factor = quantization.factor;
        rows.scales[number] = quantization.scale;
        for (k = 0; k + LANES <= width; k += LANES) {
            __m512i value = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(source + k), _mm512_set1_ps(factor)));
            value = _mm512_add_epi32(value, _mm512_set1_epi32(128));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(target + k), _mm512_cvtusepi32_epi8(value));
        }
        for (; k < width; k++) {
            const float integer = std::isfinite(source[k]) ? std::nearbyintf(source[k] * factor) : 0.0f;
            target[k] = static_cast<uint8_t>(128 + integer);
        }
    }
    for (; k < rows.depth; k++) target[k] = 0;
}

// --------------------------------------------------------------------------------------- non-linearities

// Of two numbers of which the second is none, min and max give the second: NaN stays NaN.
inline __m512 clip(__m512 x, float limit) {
    return _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(_mm512_set1_ps(limit), x));
}

// Within 2 units in the last place on [-87, 87], beyond which sigmoid and tanh are constant in float32.
inline __m512 exponential(__m512 x) {
    x = clip(x, 87.0f);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    // Taylor's series: |r| <= ln(2) / 2
    __m512 y = _mm512_set1_ps(1.0f / 5040);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 720));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 120));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 24));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f / 6));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.5f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, n);
}

inline __m512 sigmoid(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

inline __m512 tanh(__m512 x) {
    const __m512 doubled = sigmoid(_mm512_add_ps(x, x));
    return _mm512_sub_ps(_mm512_add_ps(doubled, doubled), _mm512_set1_ps(1.0f));
}

// Which lanes hold something if `count` values are left.
inline __mmask16 lanes_of(int64_t count) {
    return _cvtu32_mask16((1u << std::min<int64_t>(LANES, count)) - 1);
}

// ------------------------------------------------------------------------------------------------- threads

// Where threads wait for each other. They spin, for a step takes tens of microseconds, but give way if others
// want the processor.
class Barrier {
  public:
    explicit Barrier(int num_threads) : num_threads_(num_threads) {}
    void wait() {
        if (num_threads_ == 1) return;
        const int round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
            if (spins < 4096) _mm_pause();
            else std::this_thread::yield();
        }
    }

  private:
    const int num_threads_;
    std::atomic<int> arrived_{0};
    std::atomic<int> round_{0};
};

struct Share {
    int64_t begin, end;
    Share(int64_t total, int thread, int num_threads)
        : begin(total * thread / num_threads), end(total * (thread + 1) / num_threads) {}
};

// Calls `function(thread)` in so many threads, in all of them or in none: those that wait for each other must not
// wait for one that could not be started. `function` must not throw.
template <typename Function>
void in_threads(int num_threads, const Function& function) {
    enum { WAIT, GO, GIVE_UP };
    std::atomic<int> signal{WAIT};
    std::vector<std::thread> others;
    const auto join = [&](int value) {
        signal.store(value);
        if (value == GO) function(0);
        for (std::thread& other : others) other.join();
    };
    try {
        for (int thread = 1; thread < num_threads; thread++)
            others.emplace_back([&signal, &function, thread] {
                while (signal.load() == WAIT) std::this_thread::yield();
                if (signal.load() == GO) function(thread);
            });
    } catch (...) {
        join(GIVE_UP);
        throw;
    }
    join(GO);
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- layer

// The fields of these are those of avx512_kernel.py.
struct Layer {
    Matrix input_weight, state_weight, projection;
    const float* bias;  // in panels
    int64_t input_dim, cell_size, state_dim;
    float cell_clip, proj_clip;  // infinite: none
};

// A matrix as torch has it: outputs in one or more groups, of each of which a panel holds as many.
struct Plain {
    const float* weight;
    int64_t num_groups, num_outputs, depth;  // outputs of a group
    int64_t group_stride, output_stride, depth_stride;
};

// Where to pack it.
struct Packed {
    void* panels;
    float* scales;
    int32_t* offsets;
};

struct Sequences {
    const float* inputs;   // (num_tokens, input_dim)
    const int64_t* step_sizes;
    int64_t num_steps;
    float* outputs;        // (num_tokens, state_dim)
    float* states;         // (step_sizes[0], state_dim), read and written
    float* cells;          // (step_sizes[0], cell_size), read and written
    int64_t tokens_per_block;
};

namespace {

template <typename Type>
class Run {
  public:
    Run(const Layer& layer, const Sequences& sequences, int num_threads)
        : layer_(layer), sequences_(sequences), num_threads_(num_threads), barrier_(num_threads) {
        num_gate_panels_ = (layer.cell_size + LANES - 1) / LANES;
        num_output_panels_ = (layer.state_dim + PANEL - 1) / PANEL;
        int64_t largest = 0, tokens = 0;
        for (int64_t step = 0; step < sequences.num_steps; step++) {
            tokens += sequences.step_sizes[step];
            if (tokens >= sequences.tokens_per_block || step + 1 == sequences.num_steps) {
                largest = std::max(largest, tokens);
                tokens = 0;
            }
        }
        const int64_t num_rows = sequences.step_sizes[0];
        // Megabytes that are written before they are read.
        gates_.reset(new float[largest * num_gate_panels_ * PANEL]);
        inputs_.resize(largest, layer.input_weight.depth);
        state_.resize(num_rows, layer.state_weight.depth);
        hidden_.resize(num_rows * num_gate_panels_ * LANES);
        if (layer.projection.panels) lowered_hidden_.resize(num_rows, layer.projection.depth);
    }

    void run() {
        in_threads(num_threads_, [this](int thread) { run(thread); });
    }

  private:
    void run(int thread) {
        const float* inputs = sequences_.inputs;
        float* outputs = sequences_.outputs;
        int64_t step = 0;
        lower_rows(sequences_.states, layer_.state_dim, sequences_.step_sizes[0], state_, thread);
        while (step < sequences_.num_steps) {
            int64_t tokens = 0, end = step;
            while (end < sequences_.num_steps && tokens < sequences_.tokens_per_block)
                tokens += sequences_.step_sizes[end++];
            lower_rows(inputs, layer_.input_dim, tokens, inputs_, thread);
            barrier_.wait();
            input_products(tokens, thread);
            inputs += tokens * layer_.input_dim;
            const float* gates = gates_.get();
            for (; step < end; step++) {
                const int64_t size = sequences_.step_sizes[step];
                cells_of_step(gates, size, thread);
                barrier_.wait();
                states_of_step(outputs, size, thread);
                gates += size * num_gate_panels_ * PANEL;
                outputs += size * layer_.state_dim;
            }
            // Nobody is still reading the inputs of this block: the last step ended with a barrier.
        }
    }

    void lower_rows(const float* source, int64_t width, int64_t num_rows, Rows<Type>& target, int thread) {
        const Share rows(num_rows, thread, num_threads_);
        for (int64_t row = rows.begin; row < rows.end; row++) lower(source + row * width, width, target, row);
    }

    void input_products(int64_t num_tokens, int thread) {
        const Share panels(num_gate_panels_, thread, num_threads_);
        // Rows that are multiplied by one panel after another stay in the second cache.
        const int64_t rows_per_block = 240;
        for (int64_t first = 0; first < num_tokens; first += rows_per_block) {
            const int64_t count = std::min(rows_per_block, num_tokens - first);
            for (int64_t panel = panels.begin; panel < panels.end; panel++) {
                for_tiles(count, [&](int64_t row, auto num_rows) {
                    __m512 products[num_rows][VECTORS];
                    multiply<Type, num_rows>(inputs_, first + row, layer_.input_weight, panel, products);
                    for (int r = 0; r < num_rows; r++) {
                        float* gates = gates_.get() + ((first + row + r) * num_gate_panels_ + panel) * PANEL;
                        for (int v = 0; v < VECTORS; v++) {
                            const __m512 bias = _mm512_loadu_ps(layer_.bias + panel * PANEL + v * LANES);
                            _mm512_storeu_ps(gates + v * LANES, _mm512_add_ps(products[r][v], bias));
                        }
                    }
                });
            }
        }
    }

    void cells_of_step(const float* gates, int64_t size, int thread) {
        const Share panels(num_gate_panels_, thread, num_threads_);
        const int64_t cell_size = layer_.cell_size;
        for (int64_t panel = panels.begin; panel < panels.end; panel++) {
            const int64_t first = panel * LANES;
            const __mmask16 present = lanes_of(cell_size - first);
            for_tiles(size, [&](int64_t row, auto num_rows) {
                __m512 products[num_rows][VECTORS];
                multiply<Type, num_rows>(state_, row, layer_.state_weight, panel, products);
                for (int r = 0; r < num_rows; r++) {
                    const float* from_input = gates + ((row + r) * num_gate_panels_ + panel) * PANEL;
                    __m512 gate[VECTORS];
                    for (int v = 0; v < VECTORS; v++)
                        gate[v] = _mm512_add_ps(products[r][v], _mm512_loadu_ps(from_input + v * LANES));
                    float* cell_at = sequences_.cells + (row + r) * cell_size + first;
                    __m512 cell = _mm512_mul_ps(sigmoid(gate[2]), _mm512_maskz_loadu_ps(present, cell_at));
                    cell = clip(_mm512_fmadd_ps(sigmoid(gate[0]), tanh(gate[1]), cell), layer_.cell_clip);
                    _mm512_mask_storeu_ps(cell_at, present, cell);
                    _mm512_storeu_ps(
                        hidden_.data() + (row + r) * num_gate_panels_ * LANES + first,
                        _mm512_mul_ps(sigmoid(gate[3]), tanh(cell))
                    );
                }
            });
        }
    }

    // From hidden values to outputs, and to what the next step multiplies.
    void states_of_step(float* outputs, int64_t size, int thread) {
        const int64_t state_dim = layer_.state_dim;
        if (layer_.projection.panels) {
            const Share rows(size, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++)
                lower(hidden_.data() + row * num_gate_panels_ * LANES, layer_.cell_size, lowered_hidden_, row);
            barrier_.wait();
            const Share panels(num_output_panels_, thread, num_threads_);
            for (int64_t panel = panels.begin; panel < panels.end; panel++) {
                for_tiles(size, [&](int64_t row, auto num_rows) {
                    __m512 products[num_rows][VECTORS];
                    multiply<Type, num_rows>(lowered_hidden_, row, layer_.projection, panel, products);
                    for (int r = 0; r < num_rows; r++)
                        for (int v = 0; v < VECTORS; v++) {
                            const int64_t first = panel * PANEL + v * LANES;
                            if (first >= state_dim) break;
                            _mm512_mask_storeu_ps(
                                outputs + (row + r) * state_dim + first, lanes_of(state_dim - first),
                                clip(products[r][v], layer_.proj_clip)
                            );
                        }
                });
            }
        } else {
            const Share rows(size, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++)
                std::memcpy(
                    outputs + row * state_dim, hidden_.data() + row * num_gate_panels_ * LANES,
                    state_dim * sizeof(float)
                );
        }
        barrier_.wait();
        const Share rows(size, thread, num_threads_);
        for (int64_t row = rows.begin; row < rows.end; row++) {
            std::memcpy(
                sequences_.states + row * state_dim, outputs + row * state_dim, state_dim * sizeof(float)
            );
            lower(outputs + row * state_dim, state_dim, state_, row);
        }
        barrier_.wait();
    }

    const Layer layer_;
    const Sequences sequences_;
    const int num_threads_;
    Barrier barrier_;
    int64_t num_gate_panels_, num_output_panels_;
    std::unique_ptr<float[]> gates_;  // (tokens of a block, panels, 64), without what states add
    std::vector<float> hidden_;       // (sequences, panels, 16)
    Rows<Type> inputs_, state_, lowered_hidden_;
};

// -------------------------------------------------------------------------------------------------- packing

template <typename Type>
void pack_panel(const Plain& plain, const Packed& packed, int64_t panel, std::vector<float>& columns) {
    using Element = typename Type::Element;
    const int64_t outputs_per_panel = PANEL / plain.num_groups;
    const int64_t depth = columns.size() / PANEL;
    const int64_t first = panel * outputs_per_panel;
    const int64_t present = std::min(outputs_per_panel, plain.num_outputs - first);
    std::fill(columns.begin(), columns.end(), 0.0f);
    for (int64_t k = 0; k < plain.depth; k++)
        for (int64_t group = 0; group < plain.num_groups; group++) {
            const float* source = plain.weight + group * plain.group_stride + first * plain.output_stride +
                                  k * plain.depth_stride;
            float* target = columns.data() + k * PANEL + group * outputs_per_panel;
            if (plain.output_stride == 1) std::memcpy(target, source, present * sizeof(float));
            else
                for (int64_t output = 0; output < present; output++)
                    target[output] = source[output * plain.output_stride];
        }
    Element* panels = static_cast<Element*>(packed.panels) + panel * depth * PANEL;
    float factors[PANEL] = {};
    int32_t sums[PANEL] = {};
    if constexpr (Type::GROUP == 4) {
        uint32_t largest[PANEL] = {};
        for (int64_t k = 0; k < depth; k++)
            for (int c = 0; c < PANEL; c++) largest[c] = std::max(largest[c], magnitude(columns[k * PANEL + c]));
        for (int c = 0; c < PANEL; c++) {
            const Quantization quantization(from_magnitude(largest[c]));
            factors[c] = quantization.factor;
            packed.scales[panel * PANEL + c] = quantization.scale;
        }
    }
    for (int64_t k = 0; k < depth; k++)
        for (int c = 0; c < PANEL; c++) {
            const float value = columns[k * PANEL + c];
            Element& target = panels[(k / Type::GROUP * PANEL + c) * Type::GROUP + k % Type::GROUP];
            if constexpr (Type::GROUP == 1) target = value;
            if constexpr (Type::GROUP == 2) target = to_bfloat16(value);
            if constexpr (Type::GROUP == 4) {
                const float rounded = std::isfinite(value) ? std::nearbyintf(value * factors[c]) : 0.0f;
                const auto integer = static_cast<int8_t>(rounded);
                target = static_cast<Element>(integer);
                sums[c] += integer;
            }
        }
    if constexpr (Type::GROUP == 4)
        for (int c = 0; c < PANEL; c++) packed.offsets[panel * PANEL + c] = 128 * sums[c];
}

template <typename Type>
void pack_all(const Plain& plain, const Packed& packed, int num_threads) {
    const int64_t num_panels = (plain.num_outputs * plain.num_groups + PANEL - 1) / PANEL;
    const int64_t depth = (plain.depth + Type::GROUP - 1) / Type::GROUP * Type::GROUP;
    // A panel each, as numbers: (depth, 64)
    std::vector<std::vector<float>> columns(num_threads, std::vector<float>(depth * PANEL));
    in_threads(num_threads, [&](int thread) {
        const Share panels(num_panels, thread, num_threads);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            pack_panel<Type>(plain, packed, panel, columns[thread]);
    });
}

// ------------------------------------------------------------------------------------------------- multiplying

template <typename Type>
void multiply_all(const Matrix& matrix, const float* source, float* target, int64_t num_rows, int64_t depth,
                  int64_t num_outputs, int num_threads) {
    Rows<Type> rows;
    rows.resize(num_rows, matrix.depth);
    for (int64_t row = 0; row < num_rows; row++) lower(source + row * depth, depth, rows, row);
    in_threads(num_threads, [&](int thread) {
        const Share panels((num_outputs + PANEL - 1) / PANEL, thread, num_threads);
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            for_tiles(num_rows, [&](int64_t row, auto tile) {
                __m512 products[tile][VECTORS];
                multiply<Type, tile>(rows, row, matrix, panel, products);
                for (int v = 0; v < VECTORS; v++) {
                    const int64_t first = panel * PANEL + v * LANES;
                    if (first >= num_outputs) break;
                    const __mmask16 present = lanes_of(num_outputs - first);
                    for (int r = 0; r < tile; r++)
                        _mm512_mask_storeu_ps(
                            target + (row + r) * num_outputs + first, present, products[r][v]
                        );
                }
            });
    });
}

// Calls `function` with the type that has weights of so many bytes.
template <typename Function>
int for_type(int weight_bytes, const Function& function) {
    try {
        switch (weight_bytes) {
            case 4: function(Float32()); return 0;
#ifndef ELMO_WITHOUT_BFLOAT16
            case 2: function(BFloat16()); return 0;
#endif
#ifndef ELMO_WITHOUT_INT8
            case 1: function(Int8()); return 0;
#endif
        }
    } catch (const std::exception&) {
        return 2;
    }
    return 1;
}

}  // namespace

extern "C" {

// Of the functions and structs that avx512_kernel.py calls with. Raise it in both files whenever they change.
int abi_version() { return 1; }

// Whether it was compiled with weights of so many bytes.
int has_type(int weight_bytes) {
    return for_type(weight_bytes, [](auto) {}) == 0;
}

// These give 0, or what is wrong: 1 if there is no weight of so many bytes, 2 if memory or threads ran out.

int pack(int weight_bytes, const Plain* plain, const Packed* packed, int num_threads) {
    return for_type(weight_bytes, [=](auto type) { pack_all<decltype(type)>(*plain, *packed, num_threads); });
}

int run_linear(int weight_bytes, const Matrix* matrix, const float* rows, float* result, int64_t num_rows,
               int64_t depth, int64_t num_outputs, int num_threads) {
    return for_type(weight_bytes, [=](auto type) {
        multiply_all<decltype(type)>(*matrix, rows, result, num_rows, depth, num_outputs, num_threads);
    });
}

int run_layer(int weight_bytes, const Layer* layer, const Sequences* sequences, int num_threads) {
    return for_type(weight_bytes, [=](auto type) {
        Run<decltype(type)>(*layer, *sequences, num_threads).run();
    });
}
}
