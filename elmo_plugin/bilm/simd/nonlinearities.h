// Non-linearities, clips, and the largest of several numbers.

#pragma once

#include "vectors.h"

namespace {

// NaN stays NaN.
inline Vector clip(Vector x, float limit) { return larger(broadcast(-limit), smaller(broadcast(limit), x)); }

// Within 2 units in the last place on [-87, 87], beyond which sigmoid and tanh are constant in float32.
inline Vector exponential(Vector x) {
    x = clip(x, 87.0f);
    const Vector rounded = multiply_add(x, broadcast(1.44269504f), broadcast(ROUNDING));
    const Vector n = rounded - ROUNDING;
    Vector r = multiply_add(n, broadcast(-0.693359375f), x);
    r = multiply_add(n, broadcast(2.12194440e-4f), r);
    // Taylor's series: |r| <= ln(2) / 2
    Vector y = broadcast(1.0f / 5040);
    y = multiply_add(y, r, broadcast(1.0f / 720));
    y = multiply_add(y, r, broadcast(1.0f / 120));
    y = multiply_add(y, r, broadcast(1.0f / 24));
    y = multiply_add(y, r, broadcast(1.0f / 6));
    y = multiply_add(y, r, broadcast(0.5f));
    y = multiply_add(y, r, broadcast(1.0f));
    y = multiply_add(y, r, broadcast(1.0f));
    const Integers power_of_two = (as_integers(rounded) + 127) << 23;
    return y * as_floats(power_of_two);
}

inline Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

inline Vector tanh(Vector x) {
    const Vector doubled = sigmoid(x + x);
    return doubled + doubled - 1.0f;
}

inline Vector relu(Vector x) { return larger(Vector{}, x); }

// The larger of two numbers, NaN if one of them is.
inline Vector largest(Vector a, Vector b) { return b > a ? b : b == b ? a : b; }

}  // namespace
