// Compares the library with plain loops, for processors without Python: simd_test.py runs it on emulated ARM.

#include "simd.cpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

namespace {

using Numbers = std::vector<float>;

std::mt19937 generator(0);
int num_failures = 0;

Numbers normal(int64_t count, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    Numbers numbers(count);
    for (float& number : numbers) number = distribution(generator);
    return numbers;
}

// Compares sums of `terms` numbers in float32, of the magnitude `scale`, within the limit of tests/closeness.py. Where
// factors are rounded, `rounded` is the spacing of bfloat16 or int8, times the square root of the number of roundings.
void expect_near(const std::string& what, double ours, double expected, int terms, double scale, double rounded = 0) {
    const double limit = 2 * scale * (std::sqrt(terms) * std::numeric_limits<float>::epsilon() + rounded);
    if (std::fabs(ours - expected) <= limit) return;
    if (num_failures++ < 20) std::printf("FAILED %s: %.8g, expected %.8g\n", what.c_str(), ours, expected);
}

uint16_t to_bfloat16(float value) { return static_cast<uint16_t>(to_bfloat16(broadcast(value))[0]); }

// A row, or the weights of an output, as 8-bit integers with a scale: see `quantized`, `largest_of_pairs` in panels.py.
struct Integral {
    std::vector<int> integers;
    float scale;
    Integral(const float* values, int64_t count, bool is_weight) {
        float largest = 0;
        for (int64_t k = 0; k < count; k++) {
            largest = std::max(largest, std::fabs(values[k]));
            if (is_weight && k % 2) largest = std::max(largest, std::fabs(values[k] + values[k - 1]));
        }
        scale = largest / 127;
        for (int64_t k = 0; k < count; k++) integers.push_back(std::nearbyint(values[k] * (127 / largest)));
    }
};

// A matrix, (groups, outputs, depth), and a bias of zeros in the order of `in_panels` in panels.py.
struct OwnMatrix {
    std::vector<char> panels;
    Numbers bias, scales;
    std::vector<int32_t> sums;
    Matrix matrix;

    OwnMatrix(int bytes, const Numbers& weight, int64_t groups, int64_t outputs, int64_t depth) {
        const int64_t neighbors = 4 / bytes, multiple = depth_multiple(bytes);
        const int64_t padded = (depth + multiple - 1) / multiple * multiple;
        const int64_t per_panel = PANEL / groups, num_panels = (outputs + per_panel - 1) / per_panel;
        const int64_t strip = strip_columns();
        panels.resize(num_panels * padded * PANEL * bytes);
        bias.resize(num_panels * PANEL);
        scales.resize(num_panels * PANEL);
        sums.resize(num_panels * PANEL);
        for (int64_t group = 0; group < groups; group++)
            for (int64_t output = 0; output < outputs; output++) {
                const int64_t column = output / per_panel * PANEL + group * per_panel + output % per_panel;
                const float* values = weight.data() + (group * outputs + output) * depth;
                const Integral integral(values, depth, true);
                scales[column] = integral.scale;
                for (int64_t k = 0; k < depth; k++) {
                    const int64_t row = column / strip * padded + k / neighbors * neighbors;
                    char* at = panels.data() + (row * strip + column % strip * neighbors + k % neighbors) * bytes;
                    const uint16_t rounded = to_bfloat16(values[k]);
                    sums[column] += integral.integers[k];
                    if (bytes == 4) std::memcpy(at, &values[k], 4);
                    if (bytes == 2) std::memcpy(at, &rounded, 2);
                    if (bytes == 1) *at = static_cast<char>(integral.integers[k]);
                }
            }
        matrix = Matrix{panels.data(), bias.data(), scales.data(), sums.data(), padded};
    }
};

// ------------------------------------------------------------------------------------------------- products

// A row, or the weights of an output, with the numbers that a product multiplies.
Numbers as_multiplied(int bytes, const float* values, int64_t depth, bool is_weight) {
    Numbers numbers(values, values + depth);
    const bool rounds_rows = std::is_same<BFloat16::RowElement, BFloat16::Element>::value;
    if (bytes == 2 && (is_weight || rounds_rows))
        for (float& number : numbers) number = as_floats(to_bfloat16(broadcast(number)) << 16)[0];
    if (bytes == 1) {
        const Integral integral(values, depth, is_weight);
        for (int64_t k = 0; k < depth; k++) numbers[k] = integral.integers[k] * integral.scale;
    }
    return numbers;
}

void check_products(int bytes, const Numbers& source, const Numbers& weight, int64_t num_rows, int64_t outputs) {
    const int64_t depth = weight.size() / outputs;
    const OwnMatrix packed(bytes, weight, 1, outputs, depth);
    for_type(bytes, [&](auto type) {
        Rows<decltype(type)> rows;
        rows.resize(num_rows, depth);
        for (int64_t row = 0; row < num_rows; row++) cast_row(source.data() + row * depth, depth, rows, row);
        const Share panels{0, (outputs + PANEL - 1) / PANEL};
        for_products(rows, num_rows, packed.matrix, panels, [&](int64_t row, int64_t panel, const Vector* products) {
            const Numbers left = as_multiplied(bytes, source.data() + row * depth, depth, false);
            for (int64_t column = 0; column < PANEL && panel * PANEL + column < outputs; column++) {
                const float* values = weight.data() + (panel * PANEL + column) * depth;
                const Numbers right = as_multiplied(bytes, values, depth, true);
                double expected = 0, scale = 0;
                for (int64_t k = 0; k < depth; k++) {
                    expected += static_cast<double>(left[k]) * right[k];
                    scale = std::max(scale, std::fabs(expected));
                }
                const double ours = products[column / LANES][column % LANES];
                expect_near("product of weights of " + std::to_string(bytes) + " bytes", ours, expected, depth, scale);
            }
        });
    });
}

void products_are_sums() {
    for (int bytes : {4, 2, 1})
        for (int64_t num_rows : {1, 2, 3, 4, 5, 6, 7, 13, 17, 40})
            for (int64_t outputs : {1, 5, 64, 131})
                for (int64_t depth : {1, 7, 64, 130}) {
                    Numbers source = normal(num_rows * depth), weight = normal(outputs * depth);
                    check_products(bytes, source, weight, num_rows, outputs);
                    // The largest integers: pairs of their products just fit into 16 bits.
                    for (Numbers* numbers : {&source, &weight})
                        for (float& number : *numbers) number = number < 0 ? -1 : 1;
                    check_products(bytes, source, weight, num_rows, outputs);
                }
    // Three blocks of weights or more, and two passes of rows.
    for (int bytes : {4, 2, 1}) {
        const int64_t num_rows = ROWS_PER_PASS + 7, depth = 2 * BLOCK_BYTES<Float32> / (STRIP_COLUMNS * bytes) + 1;
        check_products(bytes, normal(num_rows * depth), normal(5 * depth), num_rows, 5);
    }
}

// ---------------------------------------------------------------------------------------------------- layers

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double clipped(double x, double limit) { return std::min(limit, std::max(-limit, x)); }

Numbers transposed(const Numbers& matrix, int64_t num_rows) {
    const int64_t num_columns = matrix.size() / num_rows;
    Numbers result(matrix.size());
    for (int64_t row = 0; row < num_rows; row++)
        for (int64_t column = 0; column < num_columns; column++)
            result[column * num_rows + row] = matrix[row * num_columns + column];
    return result;
}

// A layer over sequences, as plain loops and by the library.
struct OwnLayer {
    int64_t input_dim, cell_size, state_dim;
    float cell_clip = 0.8, proj_clip = 0.7;
    bool has_projection = state_dim != cell_size;
    std::vector<int64_t> step_sizes{5, 5, 3, 1};
    int64_t num_tokens = 14;
    Numbers input_weight = normal(4 * cell_size * input_dim, 0.3);
    Numbers state_weight = normal(4 * cell_size * state_dim, 0.3);
    Numbers projection = normal(state_dim * cell_size, 0.3), inputs = normal(num_tokens * input_dim);
    Numbers first_states = normal(5 * state_dim, 0.3), first_cells = normal(5 * cell_size, 0.3);

    mutable double scale = 1;  // the largest magnitude of a gate's sum, or of a state

    int terms() const { return step_sizes.size() * (input_dim + state_dim + cell_size); }

    std::vector<double> expected() const {
        std::vector<double> states(first_states.begin(), first_states.end()), outputs;
        std::vector<double> cells(first_cells.begin(), first_cells.end());
        int64_t token = 0;
        for (int64_t size : step_sizes)
            for (int64_t row = 0; row < size; row++, token++) {
                std::vector<double> hidden(cell_size);
                for (int64_t cell = 0; cell < cell_size; cell++) {
                    double gates[4] = {};
                    for (int gate = 0; gate < 4; gate++) {
                        const int64_t unit = gate * cell_size + cell;
                        for (int64_t k = 0; k < input_dim; k++)
                            gates[gate] += input_weight[unit * input_dim + k] * inputs[token * input_dim + k];
                        for (int64_t k = 0; k < state_dim; k++)
                            gates[gate] += state_weight[unit * state_dim + k] * states[row * state_dim + k];
                        scale = std::max(scale, std::fabs(gates[gate]));
                    }
                    double& value = cells[row * cell_size + cell];
                    value = clipped(sigmoid(gates[2]) * value + sigmoid(gates[0]) * std::tanh(gates[1]), cell_clip);
                    hidden[cell] = sigmoid(gates[3]) * std::tanh(value);
                }
                for (int64_t k = 0; k < state_dim; k++) {
                    double state = has_projection ? 0 : hidden[k];
                    if (has_projection) {
                        for (int64_t cell = 0; cell < cell_size; cell++)
                            state += projection[k * cell_size + cell] * hidden[cell];
                        state = clipped(state, proj_clip);
                    }
                    states[row * state_dim + k] = state;
                    outputs.push_back(state);
                }
            }
        return outputs;
    }

    // Returns the outputs; with gradients of these, the gradients of the first cells.
    Numbers run(int bytes, int num_threads, const Numbers* output_gradients = nullptr) {
        const OwnMatrix from_inputs(bytes, input_weight, 4, cell_size, input_dim);
        const OwnMatrix from_states(bytes, state_weight, 4, cell_size, state_dim);
        const OwnMatrix to_states(bytes, projection, 1, state_dim, cell_size);
        const Layer layer{from_inputs.matrix, from_states.matrix, has_projection ? to_states.matrix : Matrix{},
                          input_dim, cell_size, state_dim, cell_clip, proj_clip};
        Numbers outputs(num_tokens * state_dim), states = first_states, cells = first_cells;
        Numbers values(num_tokens * trace_width(cell_size)), hidden(num_tokens * cell_size);
        Trace trace{};
        if (output_gradients) trace = Trace{values.data(), hidden.data()};
        const Sequences sequences{inputs.data(), outputs.data(), states.data(), cells.data(), step_sizes.data(), 4, 7,
                                  trace};
        if (run_panel_layers(bytes, &layer, &sequences, 1, num_threads, num_threads) != 0) std::abort();
        if (!output_gradients) return outputs;
        const OwnMatrix gates_to_states(bytes, transposed(state_weight, 4 * cell_size), 1, state_dim, 4 * cell_size);
        const OwnMatrix states_to_hidden(bytes, transposed(projection, state_dim), 1, cell_size, state_dim);
        const Layer backward{Matrix{}, gates_to_states.matrix, has_projection ? states_to_hidden.matrix : Matrix{},
                             input_dim, cell_size, state_dim, cell_clip, proj_clip};
        Numbers of_outputs = *output_gradients, of_states(5 * state_dim), of_cells(5 * cell_size);
        Numbers of_gates(num_tokens * 4 * cell_size);
        const BackwardSequences passed{outputs.data(), first_cells.data(), of_outputs.data(), of_states.data(),
                                       of_cells.data(), of_gates.data(), step_sizes.data(), 4, trace};
        if (run_panel_layers_backward(bytes, &backward, &passed, 1, num_threads, num_threads) != 0) std::abort();
        return of_cells;
    }
};

void layers_are_loops() {
    using Shape = std::array<int64_t, 3>;
    for (auto [input_dim, cell_size, state_dim] : {Shape{7, 10, 6}, {64, 64, 32}, {5, 33, 70}, {16, 12, 12}})
        for (int num_threads : {1, 3}) {
            OwnLayer layer{input_dim, cell_size, state_dim};
            const std::vector<double> expected = layer.expected();
            for (int bytes : {4, 2, 1}) {
                // Each step rounds both factors of two products.
                const double rounded = bytes == 4 ? 0 : std::sqrt(4 * 4) * (bytes == 2 ? 1.0 / 128 : 1.0 / 127);
                const Numbers outputs = layer.run(bytes, num_threads);
                for (size_t k = 0; k < outputs.size(); k++)
                    expect_near("output of a layer", outputs[k], expected[k], layer.terms(), layer.scale, rounded);
            }
        }
}

void gradients_are_differences() {
    using Shape = std::array<int64_t, 3>;
    for (auto [input_dim, cell_size, state_dim] : {Shape{7, 10, 6}, {16, 12, 12}, {3, 37, 20}}) {
        OwnLayer layer{input_dim, cell_size, state_dim, 100, 100};
        const Numbers of_outputs = normal(layer.num_tokens * state_dim), gradients = layer.run(4, 2, &of_outputs);
        for (size_t k = 0; k < gradients.size(); k += 3) {
            // In float64 the error of the difference is near 1e-6: the square of the distance. The cell is a float32,
            // so that it moves by other distances to both sides.
            double difference = 0, distance = 0;
            for (double side : {1, -1}) {
                OwnLayer moved = layer;
                moved.first_cells[k] += side * 0x1p-10;
                distance += side * (static_cast<double>(moved.first_cells[k]) - layer.first_cells[k]);
                const std::vector<double> outputs = moved.expected();
                for (size_t output = 0; output < outputs.size(); output++)
                    difference += side * of_outputs[output] * outputs[output];
            }
            difference /= distance;
            expect_near("gradient of a cell", gradients[k], difference, layer.terms() + of_outputs.size(), 1, 0x1p-17);
        }
    }
}

// --------------------------------------------------------------------------------------------------- characters

// The sum of products of two arrays.
double product(const Numbers& a, const Numbers& b) {
    double sum = 0;
    for (size_t k = 0; k < a.size(); k++) sum += static_cast<double>(a[k]) * b[k % b.size()];
    return sum;
}

void words_are_encoded() {
    const int64_t dim = 5, length = 12, num_words = 17, filters = 40, output_dim = 21;
    const int64_t widths[2] = {3, 1}, counts[2] = {33, 7};
    const Numbers embedding = normal(10 * dim), highway = normal(2 * filters * filters, 0.2);
    const Numbers projection = normal(output_dim * filters), weights[2] = {normal(33 * 3 * dim), normal(7 * dim)};
    std::vector<int64_t> ids(num_words * length, 9);  // 9 is padding
    for (int64_t word = 0; word < num_words; word++)
        for (int64_t k = 0; k < word % length; k++) ids[word * length + k] = generator() % 9;

    const OwnMatrix first(4, weights[0], 1, 33, 3 * dim), second(4, weights[1], 1, 7, dim);
    const OwnMatrix of_highway(4, highway, 2, filters, filters), to_outputs(4, projection, 1, output_dim, filters);
    const Convolution convolutions[2] = {{first.matrix, 3, 33}, {second.matrix, 1, 7}};
    const Encoder encoder{embedding.data(), 10, dim, filters, output_dim, convolutions, 2, &of_highway.matrix, 1,
                          to_outputs.matrix, 1};
    Numbers vectors(num_words * output_dim), maxima(num_words * filters);
    std::vector<int32_t> places(num_words * filters), places_by_filter(filters * num_words);
    const Words words{ids.data(), num_words, length, vectors.data()};
    const Maxima found{maxima.data(), places.data()};
    if (encode_words(4, &encoder, &words, 2) != 0 || pool_words(&encoder, &words, &found, 3) != 0) std::abort();

    for (int64_t word = 0; word < num_words; word++) {
        std::vector<double> pooled;
        for (int n = 0; n < 2; n++)
            for (int64_t filter = 0; filter < counts[n]; filter++) {
                double best = -1e30;
                for (int64_t window = 0; window + widths[n] <= length; window++) {
                    double sum = 0;
                    for (int64_t k = 0; k < widths[n] * dim; k++)
                        sum += weights[n][filter * widths[n] * dim + k] *
                               embedding[ids[word * length + window + k / dim] * dim + k % dim];
                    best = std::max(best, sum);
                }
                const int64_t column = pooled.size();  // of all filters
                expect_near("maximum", maxima[word * filters + column], best, widths[n] * dim, 10);
                places_by_filter[column * num_words + word] = places[word * filters + column];
                pooled.push_back(std::tanh(best));
            }
        std::vector<double> passed;
        for (int64_t row = 0; row < filters; row++) {
            double transform = 0, carry = 0;
            for (int64_t k = 0; k < filters; k++) {
                transform += highway[row * filters + k] * pooled[k];
                carry += highway[(filters + row) * filters + k] * pooled[k];
            }
            passed.push_back(sigmoid(carry) * std::max(0.0, transform) + (1 - sigmoid(carry)) * pooled[row]);
        }
        for (int64_t row = 0; row < output_dim; row++) {
            double expected = 0;
            for (int64_t k = 0; k < filters; k++) expected += projection[row * filters + k] * passed[k];
            expect_near("vector of a word", vectors[word * output_dim + row], expected, 2 * filters + 3 * dim, 20);
        }
    }

    // Maxima are linear in the weights and in the embedding: so are their sums of products with the gradients.
    Numbers of_maxima = normal(filters * num_words);
    Numbers of_embedding(3 * embedding.size());
    Numbers of_weights[2] = {Numbers(weights[0].size()), Numbers(weights[1].size())};
    const Filters trained[2] = {
        {weights[0].data(), of_weights[0].data(), 3, 33}, {weights[1].data(), of_weights[1].data(), 1, 7}
    };
    const Maxima passed{of_maxima.data(), places_by_filter.data()};
    if (pool_words_backward(&encoder, trained, &words, &passed, of_embedding.data(), 3) != 0) std::abort();
    const double expected = product(of_maxima, transposed(maxima, num_words));
    const double of_both = product(of_weights[0], weights[0]) + product(of_weights[1], weights[1]);
    const int terms = filters * num_words + num_words * length;
    expect_near("gradients of weights", of_both, expected, terms, 100);
    expect_near("gradient of the embedding", product(of_embedding, embedding), expected, terms, 100);
}

}  // namespace

int main() {
    const std::pair<const char*, std::function<void()>> tests[] = {
        {"products are sums", products_are_sums},
        {"layers are loops", layers_are_loops},
        {"gradients are differences", gradients_are_differences},
        {"words are encoded", words_are_encoded},
    };
    for (const auto& [name, test] : tests) {
        const int before = num_failures;
        test();
        std::printf("%s: %s\n", name, num_failures == before ? "passed" : "FAILED");
    }
    return num_failures > 0;
}
