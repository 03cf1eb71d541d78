// The backward pass of an LSTM layer through its steps: from the gradients of outputs to those of gates, before their
// non-linearities. The gradients of weights and inputs are products of these, by torch: see training.py.

#pragma once

#include "lstm.h"

// The fields are those of training.py.

struct BackwardSequences {
    const float* outputs;      // (num_tokens, state_dim)
    const float* first_cells;  // (step_sizes[0], cell_size), before the first step
    // Read and written: first the gradients of what the forward pass returned, then those of unclipped outputs
    // (num_tokens, state_dim) and of the initial states and cells.
    float* output_gradients;
    float* state_gradients;
    float* cell_gradients;
    float* gate_gradients;  // (num_tokens, 4 * cell_size)
    const int64_t* step_sizes;
    int64_t num_steps;
    Trace trace;
};

namespace {

// The matrices of `layer` are the transposes of those of the forward pass: from gates to states, and from states to
// hidden values.
template <typename Type>
class LSTMBackward {
  public:
    LSTMBackward(const Layer& layer, const BackwardSequences& sequences, int num_threads)
        : layer_(layer), sequences_(sequences), num_threads_(num_threads), barrier_(num_threads) {
        gate_rows_.resize(sequences.step_sizes[0], VECTORS * layer.cell_size);
        state_rows_.resize(sequences.step_sizes[0], layer.state_dim);
    }

    // To be called by each of the threads, with its number.
    void run(int thread) {
        int64_t first = 0;  // token of a step
        for (int64_t step = 0; step < sequences_.num_steps; step++) first += sequences_.step_sizes[step];
        for (int64_t step = sequences_.num_steps - 1; step >= 0; step--) {
            const int64_t size = sequences_.step_sizes[step];
            first -= size;
            gradients_of_states(first, size, thread);
            barrier_.wait();
            gradients_of_gates(first, size, step > 0 ? sequences_.step_sizes[step - 1] : 0, thread);
            barrier_.wait();
            gradients_of_previous_states(first, size, thread);
            barrier_.wait();
        }
    }

  private:
    // The derivative of a clip, given its result, which reaches the limit only where it is clipped: 1 or 0.
    static Vector clip_derivative(Vector x, float limit) {
        const Vector magnitude = as_floats(as_integers(x) & 0x7FFFFFFF);
        return magnitude < limit ? broadcast(1.0f) : Vector{};
    }

    void gradients_of_states(int64_t first_token, int64_t size, int thread) {
        const int64_t dim = layer_.state_dim;
        const bool is_clipped = layer_.projection.panels && std::isfinite(layer_.proj_clip);
        const Share rows = share_of(size, thread, num_threads_);
        for (int64_t row = rows.begin; row < rows.end; row++) {
            float* gradients = sequences_.output_gradients + (first_token + row) * dim;
            const float* states = sequences_.state_gradients + row * dim;
            const float* outputs = sequences_.outputs + (first_token + row) * dim;
            for (int64_t k = 0; k < dim; k += LANES) {
                Vector gradient = load_first(gradients + k, dim - k) + load_first(states + k, dim - k);
                if (is_clipped) gradient *= clip_derivative(load_first(outputs + k, dim - k), layer_.proj_clip);
                store_first(gradients + k, gradient, dim - k);
            }
            cast_row(gradients, dim, state_rows_, row);
        }
    }

    // `previous_size` is that of the step before, 0 at the first one.
    void gradients_of_gates(int64_t first_token, int64_t size, int64_t previous_size, int thread) {
        const int64_t cell_size = layer_.cell_size, width = width_of_trace(cell_size);
        float* values = sequences_.trace.values + first_token * width;
        const Share panels = share_of(ceil_divided(cell_size, PANEL), thread, num_threads_);
        const auto for_hidden = [&](int64_t row, int64_t panel, const Vector* hidden_gradients) {
            const int64_t token = first_token + row;
            for (int v = 0; v < VECTORS; v++) {
                const int64_t vector = panel * VECTORS + v, first = vector * LANES, present = cell_size - first;
                if (present <= 0) break;
                const float* at = traced(values, size, vector, row);
                const Vector input = load(at + INPUT * LANES), candidate = load(at + CANDIDATE * LANES);
                const Vector forget = load(at + FORGET * LANES), output = load(at + OUTPUT * LANES);
                const Vector cell = load(at + CELL * LANES), tanh_cell = load(at + TANH_CELL * LANES);
                const float* previous_at =
                    previous_size > 0
                        ? traced(values - previous_size * width, previous_size, vector, row) + CELL * LANES
                        : sequences_.first_cells + row * cell_size + first;
                const Vector hidden_gradient = hidden_gradients[v];
                float* cell_gradient_at = sequences_.cell_gradients + row * cell_size + first;
                Vector cell_gradient = load_first(cell_gradient_at, present) +
                                       hidden_gradient * output * (1.0f - tanh_cell * tanh_cell);
                if (std::isfinite(layer_.cell_clip)) cell_gradient *= clip_derivative(cell, layer_.cell_clip);
                const Vector previous_cell = load_first(previous_at, present);
                const Vector gradients[4] = {
                    cell_gradient * candidate * input * (1.0f - input),
                    cell_gradient * input * (1.0f - candidate * candidate),
                    cell_gradient * previous_cell * forget * (1.0f - forget),
                    hidden_gradient * tanh_cell * output * (1.0f - output),
                };
                for (int g = 0; g < 4; g++) {
                    const int64_t column = g * cell_size + first;
                    store_first(sequences_.gate_gradients + token * 4 * cell_size + column, gradients[g], present);
                }
                store_first(cell_gradient_at, cell_gradient * forget, present);
            }
        };
        if (layer_.projection.panels) {
            for_products(state_rows_, size, layer_.projection, panels, for_hidden);
            return;
        }
        const float* gradients = sequences_.output_gradients + first_token * cell_size;
        for (int64_t panel = panels.begin; panel < panels.end; panel++)
            for (int64_t row = 0; row < size; row++) {
                Vector hidden_gradients[VECTORS] = {};
                for (int v = 0; v < VECTORS; v++) {
                    const int64_t first = panel * PANEL + v * LANES;
                    if (first < cell_size)
                        hidden_gradients[v] = load_first(gradients + row * cell_size + first, cell_size - first);
                }
                for_hidden(row, panel, hidden_gradients);
            }
    }

    void gradients_of_previous_states(int64_t first_token, int64_t size, int thread) {
        const int64_t dim = layer_.state_dim, width = VECTORS * layer_.cell_size;
        const Share rows = share_of(size, thread, num_threads_);
        for (int64_t row = rows.begin; row < rows.end; row++)
            cast_row(sequences_.gate_gradients + (first_token + row) * width, width, gate_rows_, row);
        barrier_.wait();
        const Share panels = share_of(ceil_divided(dim, PANEL), thread, num_threads_);
        for_products(
            gate_rows_, size, layer_.state_weight, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                store_panel(sequences_.state_gradients + row * dim, dim, panel, products);
            }
        );
    }

    const Layer layer_;
    const BackwardSequences sequences_;
    const int num_threads_;
    Barrier barrier_;
    Rows<Type> gate_rows_, state_rows_;  // of a step
};

}  // namespace
