// Powers and exponentials in double precision.
#include "elementwise.h"

struct Function {
    BOTH static double value(double x, double y) { return pow(x, y) + exp(-x * y); }
};

int main(int argc, char** argv) { return elementwise<double, Function>(argc, argv, 1e-9, 1 << 18, 0.1, 4); }
