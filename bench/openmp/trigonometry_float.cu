// Sines, cosines and hyperbolic tangents in single precision.
#include "elementwise.h"

struct Function {
    BOTH static float value(float x, float y) { return sinf(x) * cosf(y) + tanhf(x); }
};

int main(int argc, char** argv) { return elementwise<float, Function>(argc, argv, 1e-3, 1 << 20, -3, 3); }
