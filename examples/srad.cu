// Removing speckles from an image by diffusion that stops at edges. The pattern is that of Rodinia's SRAD (version 1).
//
// Copies: the image and four arrays of neighbours' indices to the device at the beginning, the image back at the end, and in each
// iteration two sums (4 bytes each) to the host, which has to know them before it can go on: two round trips an iteration.
// Launches: in each iteration one that prepares, one for each level of the reduction, two for the diffusion.
#define EXAMPLE "srad"
#include "common/pattern.h"

constexpr int BLOCK = 256;

__global__ void extract(float* image, int cells) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < cells) image[i] = expf(image[i] / 255);
}

__global__ void compress(float* image, int cells) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < cells) image[i] = logf(image[i]) * 255;
}

__global__ void prepare(const float* image, float* sums, float* squares, int cells) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < cells) sums[i] = image[i], squares[i] = image[i] * image[i];
}

// Adds up the elements of each block, in place: element i is then the sum of block i of those that were `apart` apart.
__global__ void reduce(float* sums, float* squares, int count, int apart) {
    __shared__ float s[BLOCK], q[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x] = i < count ? sums[size_t(i) * apart] : 0;
    q[threadIdx.x] = i < count ? squares[size_t(i) * apart] : 0;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half], q[threadIdx.x] += q[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[size_t(i) * apart] = s[0], squares[size_t(i) * apart] = q[0];
}

struct Neighbours {
    const int *north, *south, *west, *east;
};

struct Derivatives {
    float *north, *south, *west, *east;
};

__global__ void derive(const float* image, float* c, Neighbours at, Derivatives d, int rows, int columns, float q0) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= rows * columns) return;
    int y = i / columns, x = i % columns;
    float j = image[i];
    float n = image[at.north[y] * columns + x] - j, s = image[at.south[y] * columns + x] - j;
    float w = image[y * columns + at.west[x]] - j, e = image[y * columns + at.east[x]] - j;
    float gradient = (n * n + s * s + w * w + e * e) / (j * j), laplacian = (n + s + w + e) / j;
    float part = 1 + 0.25f * laplacian;
    float q = (0.5f * gradient - 0.0625f * laplacian * laplacian) / (part * part);
    float found = 1 / (1 + (q - q0) / (q0 * (1 + q0)));
    c[i] = fminf(fmaxf(found, 0.0f), 1.0f);
    d.north[i] = n, d.south[i] = s, d.west[i] = w, d.east[i] = e;
}

__global__ void diffuse(float* image, const float* c, Neighbours at, Derivatives d, int rows, int columns, float rate) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= rows * columns) return;
    int y = i / columns, x = i % columns;
    float divergence = c[i] * d.north[i] + c[at.south[y] * columns + x] * d.south[i] + c[i] * d.west[i] +
                       c[y * columns + at.east[x]] * d.east[i];
    image[i] += 0.25f * rate * divergence;
}

// The same on the CPU.
static void diffuse_on_the_cpu(std::vector<float>& image, int rows, int columns, int iterations, float rate) {
    size_t cells = image.size();
    std::vector<float> c(cells), d[4] = {c, c, c, c};
    for (float& j : image) j = expf(j / 255);
    for (int k = 0; k < iterations; k++) {
        double sum = 0, square = 0;
        for (float j : image) sum += j, square += double(j) * j;
        float mean = sum / cells, q0 = (square / cells - mean * mean) / (mean * mean);
        auto at = [&](int y, int x) {
            return image[size_t(std::min(std::max(y, 0), rows - 1)) * columns + std::min(std::max(x, 0), columns - 1)];
        };
        for (int y = 0; y < rows; y++)
            for (int x = 0; x < columns; x++) {
                size_t i = size_t(y) * columns + x;
                float j = image[i], l = 0, g = 0;
                const float around[4] = {at(y - 1, x), at(y + 1, x), at(y, x - 1), at(y, x + 1)};
                for (int n = 0; n < 4; n++) d[n][i] = around[n] - j, l += d[n][i], g += d[n][i] * d[n][i];
                g /= j * j, l /= j;
                float part = 1 + 0.25f * l, q = (0.5f * g - 0.0625f * l * l) / (part * part);
                c[i] = std::min(std::max(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0.0f), 1.0f);
            }
        for (int y = 0; y < rows; y++)
            for (int x = 0; x < columns; x++) {
                size_t i = size_t(y) * columns + x;
                float below = c[size_t(std::min(y + 1, rows - 1)) * columns + x];
                float right = c[size_t(y) * columns + std::min(x + 1, columns - 1)];
                image[i] += 0.25f * rate * (c[i] * d[0][i] + below * d[1][i] + c[i] * d[2][i] + right * d[3][i]);
            }
    }
    for (float& j : image) j = logf(j) * 255;
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int rows = arguments.take("rows", 96, 2, 20'000), columns = arguments.take("columns", 80, 2, 20'000);
    int iterations = arguments.take("iterations", 6, 1, 1'000'000);
    arguments.end();
    const float rate = 0.5f;
    const int cells = rows * columns, blocks = (cells + BLOCK - 1) / BLOCK;
    Random random(13);
    std::vector<float> image(cells);
    for (float& j : image) j = 50 + 150 * random.unit();
    std::vector<int> north(rows), south(rows), west(columns), east(columns);
    for (int y = 0; y < rows; y++) north[y] = std::max(y - 1, 0), south[y] = std::min(y + 1, rows - 1);
    for (int x = 0; x < columns; x++) west[x] = std::max(x - 1, 0), east[x] = std::min(x + 1, columns - 1);
    DeviceArray<int> dnorth(north), dsouth(south), dwest(west), deast(east);
    DeviceArray<float> dimage(image), sums(cells), squares(cells), c(cells), n(cells), s(cells), w(cells), e(cells);
    Neighbours at{dnorth, dsouth, dwest, deast};
    Derivatives d{n, s, w, e};
    extract<<<blocks, BLOCK>>>(dimage, cells);
    for (int k = 0; k < iterations; k++) {
        prepare<<<blocks, BLOCK>>>(dimage, sums, squares, cells);
        for (int count = cells, apart = 1; count > 1;) {
            int now = (count + BLOCK - 1) / BLOCK;
            reduce<<<now, BLOCK>>>(sums, squares, count, apart);
            count = now, apart *= BLOCK;
        }
        float sum, square;
        CHECK(cudaMemcpy(&sum, sums, sizeof sum, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&square, squares, sizeof square, cudaMemcpyDeviceToHost));
        float mean = sum / cells, q0 = (square / cells - mean * mean) / (mean * mean);
        derive<<<blocks, BLOCK>>>(dimage, c, at, d, rows, columns, q0);
        diffuse<<<blocks, BLOCK>>>(dimage, c, at, d, rows, columns, rate);
        CHECK(cudaGetLastError());
        arguments.iterated();
    }
    compress<<<blocks, BLOCK>>>(dimage, cells);
    std::vector<float> got = dimage.download();
    if (arguments.check) {
        diffuse_on_the_cpu(image, rows, columns, iterations, rate);
        for (int i = 0; i < cells; i++)
            REQUIRE(agree(got[i], image[i], 1e-3), "cell %d is %.9g instead of %.9g", i, got[i], image[i]);
    }
    return finished(arguments, "an image without speckles");
}
