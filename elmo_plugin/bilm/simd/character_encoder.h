// The character encoder of a biLM (see character_encoder.py), from character ids to the vectors of words.

#pragma once

#include "nonlinearities.h"
#include "products.h"

// The fields of these structs are those of simd/character_encoder.py.

struct Convolution {
    Matrix weight;      // float32; a row of a window is that of its first character, then of the next ...
    const float* bias;  // in panels
    int64_t width, count;
};

// A panel holds the transform of two vectors of columns, then their carry gates.
struct Highway {
    Matrix weight;
    const float* bias;  // in panels
};

struct Encoder {
    const float* embedding;  // (num_ids, embedding_dim)
    int64_t embedding_dim, num_filters, output_dim;
    const Convolution* convolutions;
    int64_t num_convolutions;
    const Highway* highways;
    int64_t num_highways;
    Matrix projection;  // null pointers: none
    const float* projection_bias;  // in panels
    int32_t uses_tanh;  // otherwise relu
};

struct Words {
    const int64_t* ids;  // (num_words, num_characters)
    int64_t num_words, num_characters;
    float* vectors;  // (num_words, output_dim)
};

namespace {

// Words whose vectors are made together: they stay in the second cache while weights pass by.
constexpr int64_t WORDS_PER_BLOCK = 240;

template <typename Type>
class EncoderRun {
  public:
    EncoderRun(const Encoder& encoder, const Words& words, int num_threads)
        : encoder_(encoder), words_(words), num_threads_(num_threads), barrier_(num_threads) {
        for (int64_t number = 0; number < encoder.num_convolutions; number++)
            widest_ = std::max(widest_, encoder.convolutions[number].width);
        const int64_t num_rows = std::min(WORDS_PER_BLOCK, words.num_words);
        cast_filters_.resize(num_rows, encoder.num_filters);
        filters_.resize(num_rows * cast_filters_.stride);
        characters_.resize(num_threads);
        for (std::vector<float>& characters : characters_)
            characters.resize((words.num_characters + widest_) * encoder.embedding_dim);
    }

    // To be called by each of the threads, with its number.
    void run(int thread) {
        for (int64_t first = 0; first < words_.num_words; first += WORDS_PER_BLOCK) {
            const int64_t count = std::min(WORDS_PER_BLOCK, words_.num_words - first);
            const Share rows(count, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++) {
                convolutions(words_.ids + (first + row) * words_.num_characters, filter_row(row), thread);
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
    // From some position on, a word repeats its last character, padding, to the end. Windows that start there all
    // give the same response, so one of them is enough.
    int64_t first_repeated(const int64_t* ids) const {
        int64_t first = words_.num_characters - 1;
        while (first > 0 && ids[first - 1] == ids[words_.num_characters - 1]) first--;
        return first;
    }

    void convolutions(const int64_t* ids, float* filters, int thread) {
        const int64_t dim = encoder_.embedding_dim;
        const int64_t last_window = first_repeated(ids);
        const int64_t num_characters = std::min(words_.num_characters, last_window + widest_);
        float* characters = characters_[thread].data();
        for (int64_t character = 0; character < num_characters; character++)
            std::memcpy(characters + character * dim, encoder_.embedding + ids[character] * dim, dim * sizeof(float));
        for (int64_t number = 0; number < encoder_.num_convolutions; number++) {
            const Convolution& convolution = encoder_.convolutions[number];
            const int64_t num_windows = std::min(last_window, words_.num_characters - convolution.width) + 1;
            const int64_t num_panels = (convolution.count + PANEL - 1) / PANEL;
            for (int64_t panel = 0; panel < num_panels; panel++) {
                Vector responses[VECTORS];
                for_products<Float32>(
                    characters, dim, nullptr, num_windows, convolution.weight, panel, panel + 1,
                    [&](int64_t window, int64_t, const Vector* products) {
                        for (int v = 0; v < VECTORS; v++)
                            responses[v] = window == 0 ? products[v] : largest(responses[v], products[v]);
                    }
                );
                for (int v = 0; v < VECTORS; v++) {
                    const int64_t first = panel * PANEL + v * LANES;
                    if (first >= convolution.count) break;
                    const Vector response = responses[v] + load(convolution.bias + first);
                    store_first(
                        filters + first, encoder_.uses_tanh ? tanh(response) : relu(response),
                        convolution.count - first
                    );
                }
            }
            filters += convolution.count;
        }
    }

    void highway(const Highway& highway, int64_t count, int thread) {
        constexpr int HALF = VECTORS / 2;
        const int64_t num_panels = (encoder_.num_filters + HALF * LANES - 1) / (HALF * LANES);
        const Share panels(num_panels, thread, num_threads_);
        for_products(
            cast_filters_, 0, count, highway.weight, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                const float* bias = highway.bias + panel * PANEL;
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
            const Share rows(count, thread, num_threads_);
            for (int64_t row = rows.begin; row < rows.end; row++)
                std::memcpy(target + row * dim, filter_row(row), dim * sizeof(float));
            return;
        }
        const Share panels((dim + PANEL - 1) / PANEL, thread, num_threads_);
        for_products(
            cast_filters_, 0, count, encoder_.projection, panels,
            [&](int64_t row, int64_t panel, const Vector* products) {
                for (int v = 0; v < VECTORS; v++) {
                    const int64_t first = panel * PANEL + v * LANES;
                    if (first >= dim) break;
                    store_first(
                        target + row * dim + first, products[v] + load(encoder_.projection_bias + first), dim - first
                    );
                }
            }
        );
    }

    float* filter_row(int64_t row) { return filters_.data() + row * cast_filters_.stride; }

    const Encoder encoder_;
    const Words words_;
    const int num_threads_;
    Barrier barrier_;
    int64_t widest_ = 1;
    std::vector<std::vector<float>> characters_;  // of each thread: (num_characters, embedding_dim) of a word
    std::vector<float> filters_;                  // (words of a block, num_filters), whole vectors long
    Rows<Type> cast_filters_;
};

}  // namespace
