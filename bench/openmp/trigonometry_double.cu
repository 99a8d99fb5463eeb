// Sines, cosines and arcs in double precision.
#include "elementwise.h"

struct Function {
    BOTH static double value(double x, double y) { return sin(x) * cos(y) + atan2(x, y); }
};

int main(int argc, char** argv) { return elementwise<double, Function>(argc, argv, 1e-9, 1 << 18, -3, 3); }
