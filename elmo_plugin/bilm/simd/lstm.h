// An LSTM layer with projection and clips over packed sequences, all steps in one call: see lstm.py.

#pragma once

#include <memory>

#include "products.h"

// The fields of these structs are those of lstm.py.

struct Layer {
    Matrix input_weight;  // with the bias of the gates
    Matrix state_weight;
    Matrix projection;  // null pointers: none
    int64_t input_dim, cell_size, state_dim;
    float cell_clip, proj_clip;  // infinite: none
};

// What a backward pass needs of every token; null pointers without one.
struct Trace {
    float* values;  // see `traced`
    float* hidden;  // (num_tokens, cell_size), before the projection
};

struct Sequences {
    const float* inputs;  // (num_tokens, input_dim)
    float* outputs;       // (num_tokens, state_dim)
    float* states;        // (step_sizes[0], state_dim), read and written
    float* cells;         // (step_sizes[0], cell_size), read and written
    const int64_t* step_sizes;
    int64_t num_steps;
    int64_t tokens_per_block;
    Trace trace;
};

namespace {

// The values of a trace are vectors: for each vector of cells the gates after sigmoid and tanh, the clipped cells and
// their tanh. They are in the order in which they are written and read: step by step, in a step vector of cells by
// vector of cells, token by token.
enum TracedVector { INPUT, CANDIDATE, FORGET, OUTPUT, CELL, TANH_CELL, TRACED };
static_assert(CELL == VECTORS, "a panel has a vector of each gate");

// The number of values for each token.
inline int64_t width_of_trace(int64_t cell_size) { return ceil_divided(cell_size, LANES) * LANES * TRACED; }

// The place of a row and of a vector of cells in a step of `size` rows, given the values of the step.
inline float* traced(float* values, int64_t size, int64_t vector, int64_t row) {
    return values + (vector * size + row) * TRACED * LANES;
}

template <typename Type>
class LSTMRun {
  public:
    LSTMRun(const Layer& layer, const Sequences& sequences, int num_threads)
        : layer_(layer), sequences_(sequences), num_threads_(num_threads), barrier_(num_threads) {
        num_gate_panels_ = ceil_divided(layer.cell_size, LANES);
        const int64_t num_rows = sequences.step_sizes[0];
        // A block ends with the step that fills it, and no step is larger than the first.
        const int64_t most_tokens = sequences.tokens_per_block - 1 + num_rows;
        // Megabytes, which need no zeros.
        gates_.reset(new float[most_tokens * num_gate_panels_ * PANEL]);
        inputs_.resize(most_tokens, layer.input_dim);
        state_.resize(num_rows, layer.state_dim);
        if (has_projection()) {
            hidden_.resize(num_rows * layer.cell_size);
            hidden_rows_.resize(num_rows, layer.cell_size);
        }
    }

    // To be called by each of the threads, with its number.
    void run(int thread) {
        int64_t step = 0, first = 0;  // of the tokens of a step
        cast_rows(sequences_.states, layer_.state_dim, sequences_.step_sizes[0], state_, thread);
        while (step < sequences_.num_steps) {
            int64_t tokens = 0, end = step;
            while (end < sequences_.num_steps && tokens < sequences_.tokens_per_block)
                tokens += sequences_.step_sizes[end++];
            cast_rows(sequences_.inputs + first * layer_.input_dim, layer_.input_dim, tokens, inputs_, thread);
            barrier_.wait();
            input_products(tokens, thread);
            for (const int64_t first_of_block = first; step < end; step++) {
                const int64_t size = sequences_.step_sizes[step];
                const int64_t next_size = step + 1 < sequences_.num_steps ? sequences_.step_sizes[step + 1] : 0;
                float* outputs = sequences_.outputs + first * layer_.state_dim;
                float* hidden = has_projection() ? hidden_.data() : outputs;
                cells_of_step(hidden, first, size, first - first_of_block, tokens, thread);
                barrier_.wait();
                if (has_projection()) {
                    cast_rows(hidden, layer_.cell_size, size, hidden_rows_, thread);
                    barrier_.wait();
                    project(outputs, size, thread);
                    barrier_.wait();
                }
                cast_rows(outputs, layer_.state_dim, size, state_, thread);
                keep_states(outputs, next_size, size, thread);
                barrier_.wait();
                first += size;
            }
            // No thread still reads the inputs of this block: the last step ended with a barrier.
        }
    }

  private:
    bool has_projection() const { return layer_.projection.panels != nullptr; }

    void cast_rows(const float* source, int64_t width, int64_t num_rows, Rows<Type>& target, int thread) {
        const Share rows = share_of(num_rows, thread, num_threads_);
        for (int64_t row = rows.begin; row < rows.end; row++) cast_row(source + row * width, width, target, row);
    }

    void input_products(int64_t num_tokens, int thread) {
        const Share panels = share_of(num_gate_panels_, thread, num_threads_);
        const float* bias = layer_.input_weight.bias;
        for_products(
            inputs_, num_tokens, layer_.input_weight, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                float* gates = gates_.get() + (panel * num_tokens + row) * PANEL;
                for (int v = 0; v < VECTORS; v++)
                    store(gates + v * LANES, products[v] + load(bias + panel * PANEL + v * LANES));
            }
        );
    }

    // Writes the cells, and to `hidden` what is projected. `token_of_block` is that of the first row, of
    // `tokens_of_block` whose products of inputs are in `gates_`.
    void cells_of_step(
        float* hidden, int64_t first_token, int64_t size, int64_t token_of_block, int64_t tokens_of_block, int thread
    ) {
        const Share panels = share_of(num_gate_panels_, thread, num_threads_);
        const int64_t cell_size = layer_.cell_size;
        const Trace& trace = sequences_.trace;
        for_products(
            state_, size, layer_.state_weight, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                const int64_t first = panel * LANES, present = cell_size - first;
                const float* from_input = gates_.get() + (panel * tokens_of_block + token_of_block + row) * PANEL;
                Vector gate[VECTORS];
                for (int v = 0; v < VECTORS; v++) gate[v] = products[v] + load(from_input + v * LANES);
                gate[CANDIDATE] += gate[CANDIDATE];  // tanh(x) is 2 sigmoid(2 x) - 1
                sigmoid(gate);
                gate[CANDIDATE] = gate[CANDIDATE] + gate[CANDIDATE] - 1.0f;
                float* cell_at = sequences_.cells + row * cell_size + first;
                Vector cell = gate[FORGET] * load_first(cell_at, present);
                cell = clip(multiply_add(gate[INPUT], gate[CANDIDATE], cell), layer_.cell_clip);
                store_first(cell_at, cell, present);
                const Vector tanh_cell = tanh(cell);
                const Vector hidden_value = gate[OUTPUT] * tanh_cell;
                if (trace.values) {
                    float* at = traced(trace.values + first_token * width_of_trace(cell_size), size, panel, row);
                    for (int v = 0; v < VECTORS; v++) store(at + v * LANES, gate[v]);
                    store(at + CELL * LANES, cell);
                    store(at + TANH_CELL * LANES, tanh_cell);
                    store_first(trace.hidden + (first_token + row) * cell_size + first, hidden_value, present);
                }
                store_first(hidden + row * cell_size + first, hidden_value, present);
            }
        );
    }

    void project(float* outputs, int64_t size, int thread) {
        const int64_t state_dim = layer_.state_dim;
        const Share panels = share_of(ceil_divided(state_dim, PANEL), thread, num_threads_);
        for_products(
            hidden_rows_, size, layer_.projection, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                Vector states[VECTORS];
                for (int v = 0; v < VECTORS; v++) states[v] = clip(products[v], layer_.proj_clip);
                store_panel(outputs + row * state_dim, state_dim, panel, states);
            }
        );
    }

    // Writes the states of the sequences that end at this step: rows `begin` to `end`.
    void keep_states(const float* outputs, int64_t begin, int64_t end, int thread) {
        const Share ending = share_of(end - begin, thread, num_threads_);
        const int64_t first = (begin + ending.begin) * layer_.state_dim;
        const int64_t count = (ending.end - ending.begin) * layer_.state_dim;
        std::memcpy(sequences_.states + first, outputs + first, count * sizeof(float));
    }

    const Layer layer_;
    const Sequences sequences_;
    const int num_threads_;
    Barrier barrier_;
    int64_t num_gate_panels_;
    std::unique_ptr<float[]> gates_;  // (panels, tokens of a block, PANEL), without products of states
    std::vector<float> hidden_;       // (sequences, cell_size), before the projection
    Rows<Type> inputs_, state_, hidden_rows_;
};

// Runs layers that do not depend on each other over their sequences, `threads_per_run` threads each,
// `num_threads / threads_per_run` layers at a time. `Run` is the class that runs one.
template <typename Run, typename Sequences>
void run_all(const Layer* layers, const Sequences* sequences, int num_runs, int num_threads, int threads_per_run) {
    std::vector<std::unique_ptr<Run>> runs;
    for (int number = 0; number < num_runs; number++)
        runs.emplace_back(new Run(layers[number], sequences[number], threads_per_run));
    const int at_a_time = num_threads / threads_per_run;
    in_threads(num_threads, [&](int thread) {
        for (int number = thread / threads_per_run; number < num_runs; number += at_a_time)
            runs[number]->run(thread % threads_per_run);
    });
}

}  // namespace
