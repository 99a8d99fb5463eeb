// A product of matrices of floats, with tiles of both in shared memory.
#include "tiled_product.h"

int main(int argc, char** argv) { return tiled_product<float>(argc, argv, 1e-4, 384); }
