// Tests of the library beside plain loops, for processors that have no Python here: simd_test.py compiles and runs it.

#include "simd.cpp"

#include <cstdio>
#include <array>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

namespace {

std::mt19937 generator(0);
int num_failures = 0;

using Numbers = std::vector<float>;

Numbers normal(int64_t count, float deviation = 1) {
    std::normal_distribution<float> distribution(0, deviation);
    Numbers numbers(count);
    for (float& number : numbers) number = distribution(generator);
    return numbers;
}

void expect_near(const std::string& what, double ours, double expected, double tolerance) {
    if (std::fabs(ours - expected) <= tolerance) return;
    if (num_failures++ < 20) std::printf("FAILED %s: %.8g, expected %.8g\n", what.c_str(), ours, expected);
}

// A matrix, (groups, outputs, depth), in panels.
struct OwnMatrix {
    std::vector<char> panels;
    Numbers scales;
    std::vector<int32_t> offsets;
    Matrix matrix;

    OwnMatrix(int bytes, const Numbers& weight, int64_t groups, int64_t outputs, int64_t depth) {
        const int64_t group = 4 / bytes, padded = (depth + group - 1) / group * group;
        const int64_t num_panels = (outputs * groups + PANEL - 1) / PANEL;
        panels.resize(num_panels * padded * PANEL * bytes);
        scales.resize(num_panels * PANEL);
        offsets.resize(num_panels * PANEL);
        const Plain plain{weight.data(), groups, outputs, depth, outputs * depth, depth, 1};
        const Packed packed{panels.data(), scales.data(), offsets.data()};
        if (pack(bytes, &plain, &packed, 2) != 0) std::abort();
        matrix = Matrix{panels.data(), scales.data(), offsets.data(), padded};
    }
};

// ------------------------------------------------------------------------------------------------- products

float rounded_to_bfloat16(float value) {
    const uint32_t bits = static_cast<uint32_t>(to_bfloat16(value)) << 16;
    float rounded;
    std::memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

void integers_add_up() {
    for (int trial = 0; trial < 2000; trial++) {
        uint8_t rows[4 * LANES];
        int8_t weights[4 * LANES];
        for (int pair = 0; pair < 2 * LANES; pair++) {
            const bool is_extreme = trial % 2;
            for (int k = 2 * pair; k < 2 * pair + 2; k++)
                rows[k] = ROW_OFFSET + (is_extreme ? (generator() % 2 ? 127 : -127) : static_cast<int>(generator() % 255) - 127);
            // Of the same sign they are at most 128 together.
            const int first = is_extreme ? 127 : generator() % 128, second = is_extreme ? 1 : generator() % (129 - first);
            const int sign = generator() % 2 ? 1 : -1;
            weights[2 * pair] = sign * first;
            weights[2 * pair + 1] = generator() % 2 ? sign * second : -sign * std::min(127, static_cast<int>(generator() % 128));
        }
        const Integers sums = add_products_of_fours(Integers{}, load_integers(rows), load_integers(weights));
        for (int lane = 0; lane < LANES; lane++) {
            int expected = 0;
            for (int k = 4 * lane; k < 4 * lane + 4; k++)
                expected += (ROW_OFFSET ? static_cast<int>(rows[k]) : static_cast<int8_t>(rows[k])) * weights[k];
            expect_near("sums of integers", sums[lane], expected, 0);
        }
    }
}

// What a product in a type multiplies in place of a row, or of the weights of an output.
Numbers as_multiplied(int bytes, const float* values, int64_t depth, bool is_weight) {
    Numbers numbers(values, values + depth);
#ifdef ELMO_BFLOAT16_PRODUCTS
    const bool rounds_rows = true;
#else
    const bool rounds_rows = false;
#endif
    if (bytes == 2 && (is_weight || rounds_rows))
        for (float& number : numbers) number = rounded_to_bfloat16(number);
    if (bytes == 1) {
        float largest = 0;
        for (float number : numbers) largest = std::max(largest, std::fabs(number));
        if (is_weight)
            for (int64_t k = 0; k + 1 < depth; k += 2) largest = std::max(largest, std::fabs(numbers[k] + numbers[k + 1]));
        for (float& number : numbers) number = std::nearbyintf(number * (127 / largest)) * (largest / 127);
    }
    return numbers;
}

void products_are_sums() {
    for (int bytes : {4, 2, 1})
        for (int64_t num_rows : {1, 2, 3, 4, 5, 6, 7, 13})
            for (int64_t outputs : {1, 5, 64, 131})
                for (int64_t depth : {1, 7, 64, 130}) {
                    const Numbers weight = normal(outputs * depth), source = normal(num_rows * depth);
                    const OwnMatrix packed(bytes, weight, 1, outputs, depth);
                    for_type(bytes, [&](auto type) {
                        Rows<decltype(type)> rows;
                        rows.resize(num_rows, depth);
                        for (int64_t row = 0; row < num_rows; row++) cast_row(source.data() + row * depth, depth, rows, row);
                        const Share panels((outputs + PANEL - 1) / PANEL, 0, 1);
                        for_products(rows, 0, num_rows, packed.matrix, panels, [&](int64_t row, int64_t panel, const Vector* products) {
                            const Numbers left = as_multiplied(bytes, source.data() + row * depth, depth, false);
                            for (int64_t column = 0; column < PANEL && panel * PANEL + column < outputs; column++) {
                                const int64_t output = panel * PANEL + column;
                                const Numbers right = as_multiplied(bytes, weight.data() + output * depth, depth, true);
                                double expected = 0;
                                for (int64_t k = 0; k < depth; k++) expected += static_cast<double>(left[k]) * right[k];
                                expect_near(
                                    "product of weights of " + std::to_string(bytes) + " bytes",
                                    products[column / LANES][column % LANES], expected, 2e-5
                                );
                            }
                        });
                    });
                }
}

// ---------------------------------------------------------------------------------------------------- layers

// A layer of `step_sizes`, forward as plain loops and as the library.
struct OwnLayer {
    int64_t input_dim, cell_size, state_dim;
    bool has_projection = state_dim != cell_size;
    std::vector<int64_t> step_sizes{5, 5, 3, 1};
    int64_t num_tokens = 14;
    Numbers weight = normal(4 * cell_size * (input_dim + state_dim), 0.3), bias = normal(4 * cell_size);
    Numbers projection = normal(state_dim * cell_size, 0.3), inputs = normal(num_tokens * input_dim);
    Numbers first_states = normal(5 * state_dim, 0.3), first_cells = normal(5 * cell_size, 0.3);
    float cell_clip = 0.8, proj_clip = 0.7;

    static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
    static double clipped(double x, double limit) { return std::min(limit, std::max(-limit, x)); }

    std::vector<double> expected() const {
        std::vector<double> states(first_states.begin(), first_states.end()), cells(first_cells.begin(), first_cells.end()), outputs;
        int64_t token = 0;
        for (int64_t size : step_sizes)
            for (int64_t row = 0; row < size; row++, token++) {
                std::vector<double> hidden(cell_size);
                for (int64_t cell = 0; cell < cell_size; cell++) {
                    double gates[4];
                    for (int gate = 0; gate < 4; gate++) {
                        const int64_t unit = gate * cell_size + cell;
                        gates[gate] = bias[unit];
                        for (int64_t k = 0; k < input_dim; k++)
                            gates[gate] += weight[unit * (input_dim + state_dim) + k] * inputs[token * input_dim + k];
                        for (int64_t k = 0; k < state_dim; k++)
                            gates[gate] += weight[unit * (input_dim + state_dim) + input_dim + k] * states[row * state_dim + k];
                    }
                    double& value = cells[row * cell_size + cell];
                    value = clipped(sigmoid(gates[2]) * value + sigmoid(gates[0]) * std::tanh(gates[1]), cell_clip);
                    hidden[cell] = sigmoid(gates[3]) * std::tanh(value);
                }
                for (int64_t k = 0; k < state_dim; k++) {
                    double state = has_projection ? 0 : hidden[k];
                    if (has_projection)
                        for (int64_t cell = 0; cell < cell_size; cell++) state += projection[k * cell_size + cell] * hidden[cell];
                    states[row * state_dim + k] = has_projection ? clipped(state, proj_clip) : state;
                    outputs.push_back(states[row * state_dim + k]);
                }
            }
        return outputs;
    }

    // Outputs; with a gradient for them, the gradients of the first cells.
    Numbers run(int bytes, int num_threads, const Numbers* gradient = nullptr) {
        const int64_t width = input_dim + state_dim;
        Numbers input_weight, state_weight, panel_bias;
        for (int64_t unit = 0; unit < 4 * cell_size; unit++) {
            const float* row = weight.data() + unit * width;
            input_weight.insert(input_weight.end(), row, row + input_dim);
            state_weight.insert(state_weight.end(), row + input_dim, row + width);
        }
        panel_bias.resize((cell_size + LANES - 1) / LANES * PANEL);
        for (int64_t unit = 0; unit < 4 * cell_size; unit++) {
            const int64_t gate = unit / cell_size, cell = unit % cell_size;
            panel_bias[cell / LANES * PANEL + gate * LANES + cell % LANES] = bias[unit];
        }
        const OwnMatrix from_inputs(bytes, input_weight, 4, cell_size, input_dim);
        const OwnMatrix from_states(bytes, state_weight, 4, cell_size, state_dim);
        const OwnMatrix to_states(bytes, projection, 1, state_dim, cell_size);
        Numbers outputs(num_tokens * state_dim), states = first_states, cells = first_cells;
        Numbers gates(num_tokens * 4 * cell_size), all_cells(num_tokens * cell_size), tanh_cells = all_cells, hidden = all_cells;
        const Matrix none{};
        const Layer layer{from_inputs.matrix, from_states.matrix, has_projection ? to_states.matrix : none, panel_bias.data(),
                          input_dim, cell_size, state_dim, cell_clip, proj_clip};
        const Trace trace{gates.data(), all_cells.data(), tanh_cells.data(), hidden.data()};
        const Sequences sequences{inputs.data(), step_sizes.data(), 4, outputs.data(), states.data(), cells.data(), 7,
                                  gradient ? trace : Trace{}};
        if (run_layers(bytes, &layer, &sequences, 1, num_threads, num_threads) != 0) std::abort();
        if (!gradient) return outputs;
        Numbers transposed(state_dim * 4 * cell_size), back(cell_size * state_dim);
        for (int64_t unit = 0; unit < 4 * cell_size; unit++)
            for (int64_t k = 0; k < state_dim; k++) transposed[k * 4 * cell_size + unit] = state_weight[unit * state_dim + k];
        for (int64_t k = 0; k < state_dim; k++)
            for (int64_t cell = 0; cell < cell_size; cell++) back[cell * state_dim + k] = projection[k * cell_size + cell];
        const OwnMatrix gates_to_states(bytes, transposed, 1, state_dim, 4 * cell_size);
        const OwnMatrix states_to_hidden(bytes, back, 1, cell_size, state_dim);
        Numbers output_gradients = *gradient, state_gradients(5 * state_dim), cell_gradients(5 * cell_size), gate_gradients(gates.size());
        const BackwardLayer backward{gates_to_states.matrix, has_projection ? states_to_hidden.matrix : none, cell_size, state_dim,
                                     cell_clip, proj_clip};
        const BackwardSequences passed{step_sizes.data(), 4, trace, outputs.data(), first_cells.data(), output_gradients.data(),
                                       state_gradients.data(), cell_gradients.data(), gate_gradients.data()};
        if (run_layers_backward(bytes, &backward, &passed, 1, num_threads, num_threads) != 0) std::abort();
        return cell_gradients;
    }
};

void layers_are_loops() {
    for (auto [input_dim, cell_size, state_dim] : {std::array<int64_t, 3>{7, 10, 6}, {64, 64, 32}, {5, 33, 70}, {16, 12, 12}})
        for (int num_threads : {1, 3}) {
            OwnLayer layer{input_dim, cell_size, state_dim};
            const std::vector<double> expected = layer.expected();
            for (int bytes : {4, 2, 1}) {
                const Numbers outputs = layer.run(bytes, num_threads);
                for (size_t k = 0; k < outputs.size(); k++)
                    expect_near("output of a layer", outputs[k], expected[k], bytes == 4 ? 1e-5 : bytes == 2 ? 0.05 : 0.15);
            }
        }
}

void gradients_are_differences() {
    for (auto [input_dim, cell_size, state_dim] : {std::array<int64_t, 3>{7, 10, 6}, {16, 12, 12}, {3, 37, 20}}) {
        OwnLayer layer{input_dim, cell_size, state_dim};
        layer.cell_clip = layer.proj_clip = 100;
        const Numbers weights = normal(layer.num_tokens * state_dim);
        const Numbers gradients = layer.run(4, 2, &weights);
        for (size_t k = 0; k < gradients.size(); k += 3) {
            double difference = 0;
            for (double sign : {1, -1}) {
                OwnLayer moved = layer;
                moved.first_cells[k] += sign * 1e-3;
                const std::vector<double> outputs = moved.expected();
                for (size_t output = 0; output < outputs.size(); output++) difference += sign * weights[output] * outputs[output];
            }
            expect_near("gradient of a cell", gradients[k], difference / 2e-3, 2e-3);
        }
    }
}

// --------------------------------------------------------------------------------------------------- characters

void words_are_encoded() {
    const int64_t dim = 5, length = 12, num_words = 17, filters = 40, width = 21;
    const int64_t widths[2] = {3, 1}, counts[2] = {33, 7};
    const Numbers embedding = normal(10 * dim), highway = normal(2 * filters * filters, 0.2), projection = normal(width * filters);
    std::vector<int64_t> ids(num_words * length, 9);  // 9 is padding
    for (int64_t word = 0; word < num_words; word++)
        for (int64_t k = 0; k < word % length + (word == num_words - 1 ? 8 : 0); k++) ids[word * length + k] = generator() % 9;
    std::vector<Numbers> convolutions;
    std::vector<OwnMatrix> matrices;
    for (int n = 0; n < 2; n++) {
        convolutions.push_back(normal(counts[n] * widths[n] * dim));
        matrices.emplace_back(4, convolutions[n], 1, counts[n], widths[n] * dim);
    }
    const Numbers zeros(4 * PANEL + 4 * filters);
    const Convolution of_widths[2] = {{matrices[0].matrix, zeros.data(), 3, 33}, {matrices[1].matrix, zeros.data(), 1, 7}};
    const OwnMatrix highway_matrix(4, highway, 2, filters, filters), projection_matrix(4, projection, 1, width, filters);
    const Highway one_highway{highway_matrix.matrix, zeros.data()};
    const Encoder encoder{embedding.data(), dim, filters, width, of_widths, 2, &one_highway, 1, projection_matrix.matrix, zeros.data(), 1};
    Numbers vectors(num_words * width);
    const Words words{ids.data(), num_words, length, vectors.data()};
    if (encode_words(4, &encoder, &words, 2) != 0) std::abort();
    Numbers maxima(num_words * filters), gradients = normal(filters * num_words);
    std::vector<int32_t> places(num_words * filters), places_by_filter(filters * num_words);
    const Maxima found{maxima.data(), places.data()};
    if (pool_words(&encoder, &words, &found, 3) != 0) std::abort();
    std::vector<Numbers> expected_of_weights;
    for (const Numbers& weight : convolutions) expected_of_weights.emplace_back(weight.size());
    Numbers expected_of_embedding(embedding.size());
    for (int64_t word = 0; word < num_words; word++) {
        std::vector<double> pooled;
        for (int n = 0; n < 2; n++)
            for (int64_t filter = 0; filter < counts[n]; filter++) {
                double best = -1e30;
                int64_t place = 0;
                for (int64_t window = 0; window + widths[n] <= length; window++) {
                    double sum = 0;
                    for (int64_t k = 0; k < widths[n]; k++)
                        for (int64_t d = 0; d < dim; d++)
                            sum += convolutions[n][(filter * widths[n] + k) * dim + d] * embedding[ids[word * length + window + k] * dim + d];
                    if (sum <= best + 1e-9) continue;
                    best = sum;
                    place = window;
                }
                const int64_t row = pooled.size();  // of all filters
                expect_near("maximum", maxima[word * filters + row], best, 1e-5);
                expect_near("its place", places[word * filters + row], place, 0);
                places_by_filter[row * num_words + word] = place;
                if (row % 3 == 0) gradients[row * num_words + word] = 0;
                const float gradient = gradients[row * num_words + word];
                for (int64_t k = 0; k < widths[n]; k++)
                    for (int64_t d = 0; d < dim; d++) {
                        const int64_t column = (filter * widths[n] + k) * dim + d;
                        const int64_t number = ids[word * length + place + k] * dim + d;
                        expected_of_weights[n][column] += gradient * embedding[number];
                        expected_of_embedding[number] += gradient * convolutions[n][column];
                    }
                pooled.push_back(std::tanh(best));
            }
        std::vector<double> passed = pooled;
        for (int64_t row = 0; row < filters; row++) {
            double transform = 0, carry = 0;
            for (int64_t k = 0; k < filters; k++) {
                transform += highway[row * filters + k] * pooled[k];
                carry += highway[(filters + row) * filters + k] * pooled[k];
            }
            const double gate = OwnLayer::sigmoid(carry);
            passed[row] = gate * std::max(0.0, transform) + (1 - gate) * pooled[row];
        }
        for (int64_t row = 0; row < width; row++) {
            double expected = 0;
            for (int64_t k = 0; k < filters; k++) expected += projection[row * filters + k] * passed[k];
            expect_near("vector of a word", vectors[word * width + row], expected, 5e-5);
        }
    }
    Numbers of_embedding(3 * embedding.size()), of_weights[2] = {Numbers(convolutions[0].size()), Numbers(convolutions[1].size())};
    const Filters trained[2] = {
        {convolutions[0].data(), of_weights[0].data(), widths[0], counts[0]}, {convolutions[1].data(), of_weights[1].data(), widths[1], counts[1]}
    };
    const MaximaGradients passed{gradients.data(), places_by_filter.data(), of_embedding.data(), 10};
    if (pool_words_backward(embedding.data(), dim, trained, 2, &words, &passed, 3) != 0) std::abort();
    for (int n = 0; n < 2; n++)
        for (size_t k = 0; k < of_weights[n].size(); k++)
            expect_near("gradient of a convolution", of_weights[n][k], expected_of_weights[n][k], 1e-4);
    for (size_t k = 0; k < embedding.size(); k++) {
        const double sum = of_embedding[k] + of_embedding[embedding.size() + k] + of_embedding[2 * embedding.size() + k];
        expect_near("gradient of the embedding", sum, expected_of_embedding[k], 1e-4);
    }
}

}  // namespace

int main() {
    const std::pair<const char*, std::function<void()>> tests[] = {
        {"integers add up", integers_add_up},
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
