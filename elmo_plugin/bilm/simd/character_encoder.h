// The character encoder of a biLM, from character ids to the vectors of words: see
// character_encoder.py.

#pragma once

#include "products.h"

// The fields of these structs are those of character_encoder.py.

struct Convolution {
    Matrix weight;  // float32; a row of a window is that of its first character, then of the next ...
    int64_t width, count;
};

struct Encoder {
    const float* embedding;  // (num_ids, embedding_dim)
    int64_t num_ids, embedding_dim, num_filters, output_dim;
    const Convolution* convolutions;
    int64_t num_convolutions;
    const Matrix* highways;  // a panel holds the transform of two vectors of columns, then their carry gates
    int64_t num_highways;
    Matrix projection;  // null pointers: none
    int32_t uses_tanh;  // otherwise relu
};

struct Words {
    const int64_t* ids;  // (num_words, num_characters)
    int64_t num_words, num_characters;
    float* vectors;  // (num_words, output_dim)
};

// The maxima over time of convolutions, or their gradients; and the first character of the window of each maximum.
struct Maxima {
    float* values;
    int32_t* places;
};

// A convolution and the gradient of its weight.
struct Filters {
    const float* weight;  // (count, width * embedding_dim): first what multiplies the first character of a window
    float* weight_gradient;
    int64_t width, count;
};

namespace {

// The convolutions of one word at a time, with their maxima over time.
class WordConvolutions {
  public:
    WordConvolutions(const Encoder& encoder, int64_t num_characters)
        : encoder_(encoder), num_characters_(num_characters) {
        for (int64_t number = 0; number < encoder.num_convolutions; number++)
            widest_ = std::max(widest_, encoder.convolutions[number].width);
        windows_.values.resize((num_characters + widest_) * encoder.embedding_dim);
        windows_.stride = encoder.embedding_dim;
    }

    // Calls `take(filter, count, maxima, places)` for each vector of filters. `count` filters are left, which may be
    // more or fewer than a vector has.
    template <typename Take>
    void run(const int64_t* ids, const Take& take) {
        const int64_t dim = encoder_.embedding_dim;
        const int64_t last_window = first_repeated(ids);
        const int64_t num_characters = std::min(num_characters_, last_window + widest_);
        for (int64_t character = 0; character < num_characters; character++)
            std::memcpy(windows_.row(character), encoder_.embedding + ids[character] * dim, dim * sizeof(float));
        int64_t first_filter = 0;
        for (int64_t number = 0; number < encoder_.num_convolutions; number++) {
            const Convolution& convolution = encoder_.convolutions[number];
            const int64_t num_windows = std::min(last_window, num_characters_ - convolution.width) + 1;
            const int64_t num_panels = ceil_divided(convolution.count, PANEL);
            for (int64_t panel = 0; panel < num_panels; panel++) {
                Vector responses[VECTORS];
                for (Vector& response : responses) response = broadcast(-std::numeric_limits<float>::infinity());
                Integers places[VECTORS] = {};
                for_products(
                    windows_, num_windows, convolution.weight, Share{panel, panel + 1},
                    [&](int64_t window, int64_t, const Vector* products) {
                        for (int v = 0; v < VECTORS; v++) {
                            places[v] = products[v] > responses[v] ? broadcast(int32_t(window)) : places[v];
                            responses[v] = larger_or_nan(responses[v], products[v]);
                        }
                    }
                );
                for (int v = 0; v < VECTORS; v++) {
                    const int64_t first = panel * PANEL + v * LANES;
                    if (first >= convolution.count) break;
                    const Vector maxima = responses[v] + load(convolution.weight.bias + first);
                    take(first_filter + first, convolution.count - first, maxima, places[v]);
                }
            }
            first_filter += convolution.count;
        }
    }

  private:
    // From some position on, a word repeats its last character, padding, to the end. Windows that start there have the
    // same response, so one of them is enough.
    int64_t first_repeated(const int64_t* ids) const {
        int64_t first = num_characters_ - 1;
        while (first > 0 && ids[first - 1] == ids[num_characters_ - 1]) first--;
        return first;
    }

    const Encoder encoder_;
    const int64_t num_characters_;
    int64_t widest_ = 1;
    Rows<Float32> windows_;  // they overlap: each begins a character after the one before
};

template <typename Type>
class EncoderRun {
  public:
    EncoderRun(const Encoder& encoder, const Words& words, int num_threads)
        : encoder_(encoder), words_(words), num_threads_(num_threads), barrier_(num_threads),
          convolutions_(num_threads, WordConvolutions(encoder, words.num_characters)) {
        const int64_t num_rows = std::min(ROWS_PER_PASS, words.num_words);
        cast_filters_.resize(num_rows, encoder.num_filters);
        filters_.resize(num_rows * cast_filters_.stride);
    }

    // To be called by each of the threads, with its number.
    void run(int thread) {
        for (int64_t first = 0; first < words_.num_words; first += ROWS_PER_PASS) {
            const int64_t count = std::min(ROWS_PER_PASS, words_.num_words - first);
            const Share rows = share_of(count, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++) {
                float* filters = filter_row(row);
                convolutions_[thread].run(
                    words_.ids + (first + row) * words_.num_characters,
                    [&](int64_t filter, int64_t count, Vector maxima, Integers) {
                        store_first(filters + filter, encoder_.uses_tanh ? tanh(maxima) : relu(maxima), count);
                    }
                );
                cast_row(filter_row(row), encoder_.num_filters, cast_filters_, row);
            }
            barrier_.wait();
            for (int64_t number = 0; number < encoder_.num_highways; number++) {
                highway(encoder_.highways[number], count, thread);
                barrier_.wait();
                for (int64_t row = rows.begin; row < rows.end; row++)
                    cast_row(filter_row(row), encoder_.num_filters, cast_filters_, row);
                barrier_.wait();
            }
            vectors(words_.vectors + first * encoder_.output_dim, count, thread);
            barrier_.wait();
        }
    }

  private:
    void highway(const Matrix& weight, int64_t count, int thread) {
        constexpr int HALF = VECTORS / 2;
        const int64_t num_panels = ceil_divided(encoder_.num_filters, HALF * LANES);
        const Share panels = share_of(num_panels, thread, num_threads_);
        for_products(
            cast_filters_, count, weight, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                const float* bias = weight.bias + panel * PANEL;
                for (int v = 0; v < HALF; v++) {
                    const int64_t first = (panel * HALF + v) * LANES;
                    if (first >= encoder_.num_filters) break;
                    const Vector transformed = relu(products[v] + load(bias + v * LANES));
                    const Vector gate = sigmoid(products[HALF + v] + load(bias + (HALF + v) * LANES));
                    float* at = filter_row(row) + first;
                    store(at, gate * transformed + (1.0f - gate) * load(at));
                }
            }
        );
    }

    void vectors(float* target, int64_t count, int thread) {
        const int64_t dim = encoder_.output_dim;
        if (!encoder_.projection.panels) {
            const Share rows = share_of(count, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++)
                std::memcpy(target + row * dim, filter_row(row), dim * sizeof(float));
            return;
        }
        const Share panels = share_of(ceil_divided(dim, PANEL), thread, num_threads_);
        for_products(
            cast_filters_, count, encoder_.projection, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                const float* bias = encoder_.projection.bias + panel * PANEL;
                Vector values[VECTORS];
                for (int v = 0; v < VECTORS; v++) values[v] = products[v] + load(bias + v * LANES);
                store_panel(target + row * dim, dim, panel, values);
            }
        );
    }

    float* filter_row(int64_t row) { return filters_.data() + row * cast_filters_.stride; }

    const Encoder encoder_;
    const Words words_;
    const int num_threads_;
    Barrier barrier_;
    std::vector<WordConvolutions> convolutions_;  // of each thread
    std::vector<float> filters_;                  // (words of a block, num_filters), whole vectors long
    Rows<Type> cast_filters_;
};

// `target += factor * source`, of `count` numbers.
inline void add_scaled(float* target, const float* source, float factor, int64_t count) {
    for (int64_t first = 0; first < count; first += LANES) {
        const Vector sum = multiply_add(
            broadcast(factor), load_first(source + first, count - first), load_first(target + first, count - first)
        );
        store_first(target + first, sum, count - first);
    }
}

// Writes the maxima of convolutions, (num_words, num_filters).
inline void write_maxima(const Encoder& encoder, const Words& words, const Maxima& maxima, int num_threads) {
    std::vector<WordConvolutions> convolutions(num_threads, WordConvolutions(encoder, words.num_characters));
    in_threads(num_threads, [&](int thread) {
        const Share rows = share_of(words.num_words, thread, num_threads);
        for (int64_t row = rows.begin; row < rows.end; row++)
            convolutions[thread].run(
                words.ids + row * words.num_characters,
                [&](int64_t filter, int64_t count, Vector values, Integers places) {
                    const int64_t at = row * encoder.num_filters + filter;
                    store_first(maxima.values + at, values, count);
                    std::memcpy(maxima.places + at, &places, std::min<int64_t>(count, LANES) * sizeof(int32_t));
                }
            );
    });
}

// Adds to the gradients of weights, and to gradients of the embedding for each thread, (num_threads, num_ids,
// embedding_dim). Only the window that has the maximum of a filter has a gradient. `gradients` are filter by filter,
// (num_filters, num_words).
inline void add_gradients_of_maxima(
    const Encoder& encoder, const Filters* filters, const Words& words, const Maxima& gradients,
    float* embedding_gradients, int num_threads
) {
    const int64_t dim = encoder.embedding_dim;
    in_threads(num_threads, [&](int thread) {
        float* embedding_gradient = embedding_gradients + thread * encoder.num_ids * dim;
        int64_t filter = 0;  // of all convolutions
        for (int64_t number = 0; number < encoder.num_convolutions; number++) {
            const Filters& own = filters[number];
            for (int64_t index = 0; index < own.count; index++, filter++) {
                if (filter % num_threads != thread) continue;
                const float* weight = own.weight + index * own.width * dim;
                float* weight_gradient = own.weight_gradient + index * own.width * dim;
                for (int64_t word = 0; word < words.num_words; word++) {
                    const float gradient = gradients.values[filter * words.num_words + word];
                    if (gradient == 0.0f) continue;
                    const int64_t place = gradients.places[filter * words.num_words + word];
                    const int64_t* window = words.ids + word * words.num_characters + place;
                    for (int64_t character = 0; character < own.width; character++) {
                        const int64_t row = window[character] * dim, column = character * dim;
                        add_scaled(weight_gradient + column, encoder.embedding + row, gradient, dim);
                        add_scaled(embedding_gradient + row, weight + column, gradient, dim);
                    }
                }
            }
        }
    });
}

}  // namespace
