// A product of matrices of doubles, with tiles of both in shared memory.
#include "tiled_product.h"

int main(int argc, char** argv) { return tiled_product<double>(argc, argv, 1e-10, 320); }
