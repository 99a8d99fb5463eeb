// Training a network with one hidden layer by back-propagation. The pattern is that of Rodinia's Back Propagation, with several
// iterations, as the DRMaestro paper extended it.
//
// Copies, in each iteration: inputs and weights to the device, one partial sum for each block and hidden unit back, then the hidden
// units' errors, the earlier changes and the weights to the device, and inputs and weights back: seven copies, four of them as
// large as all weights (17 × inputs floats).
// Launches, in each iteration: two, one before and one after what the host computes.
#define EXAMPLE "backprop"
#include "common/pattern.h"

constexpr int HIDDEN = 16, ROWS = 16, PITCH = HIDDEN + 1;
constexpr float RATE = 0.3f, MOMENTUM = 0.3f;

// The sums of a block's inputs, weighted, for each hidden unit. Unit 0 and input 0 are constants.
__global__ void forward(const float* input, const float* weights, float* partial, int inputs) {
    __shared__ float product[ROWS][HIDDEN];
    int unit = threadIdx.x, row = threadIdx.y, i = blockIdx.x * ROWS + row + 1;
    product[row][unit] = i <= inputs ? weights[size_t(i) * PITCH + unit + 1] * input[i] : 0;
    __syncthreads();
    for (int half = ROWS / 2; half > 0; half /= 2) {
        if (row < half) product[row][unit] += product[row + half][unit];
        __syncthreads();
    }
    if (row == 0) partial[blockIdx.x * HIDDEN + unit] = product[0][unit];
}

__global__ void adjust(const float* delta, const float* input, float* weights, float* before, int inputs) {
    int unit = threadIdx.x + 1, i = blockIdx.x * ROWS + threadIdx.y + 1;
    if (i > inputs) return;
    size_t at = size_t(i) * PITCH + unit;
    float change = RATE * delta[unit] * input[i] + MOMENTUM * before[at];
    weights[at] += change;
    before[at] = change;
}

static float squash(float x) { return 1 / (1 + expf(-x)); }

// What the host does between the launches: the hidden units' errors.
struct Output {
    float weights[HIDDEN + 1];
    explicit Output(Random& random) {
        for (float& w : weights) w = random.unit() - 0.5f;
    }
    void errors(const float* sums, float* delta) {
        float hidden[HIDDEN + 1] = {1}, sum = weights[0];
        for (int h = 1; h <= HIDDEN; h++) hidden[h] = squash(sums[h]), sum += weights[h] * hidden[h];
        float out = squash(sum), error = out * (1 - out) * (0.1f - out);
        for (int h = 0; h <= HIDDEN; h++) {
            delta[h] = hidden[h] * (1 - hidden[h]) * error * weights[h];
            weights[h] += RATE * error * hidden[h];
        }
    }
};

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int inputs = arguments.take("inputs", 2000, 1, 10'000'000);
    int iterations = arguments.take("iterations", 3, 1, 1'000'000);
    arguments.end();
    int blocks = (inputs + ROWS - 1) / ROWS;
    Random random(23);
    std::vector<float> input(inputs + 1), weights(size_t(inputs + 1) * PITCH), before(weights.size());
    for (float& x : input) x = random.unit();
    for (float& w : weights) w = (random.unit() - 0.5f) / inputs;
    std::vector<float> first = weights;
    Output output(random);
    const Output same = output;
    DeviceArray<float> dinput(input.size()), dweights(weights.size()), dbefore(weights.size());
    DeviceArray<float> dpartial(size_t(blocks) * HIDDEN), ddelta(HIDDEN + 1);
    for (int k = 0; k < iterations; k++) {
        dinput.upload(input);
        dweights.upload(weights);
        forward<<<blocks, dim3(HIDDEN, ROWS)>>>(dinput, dweights, dpartial, inputs);
        CHECK(cudaGetLastError());
        std::vector<float> partial = dpartial.download(), delta(HIDDEN + 1);
        float sums[HIDDEN + 1];
        for (int h = 1; h <= HIDDEN; h++) {
            sums[h] = weights[h];
            for (int b = 0; b < blocks; b++) sums[h] += partial[size_t(b) * HIDDEN + h - 1];
        }
        output.errors(sums, delta.data());
        ddelta.upload(delta);
        dbefore.upload(before);
        dweights.upload(weights);
        adjust<<<blocks, dim3(HIDDEN, ROWS)>>>(ddelta, dinput, dweights, dbefore, inputs);
        CHECK(cudaGetLastError());
        input = dinput.download();
        weights = dweights.download();
        arguments.iterated();
    }
    if (arguments.check) {
        Output again = same;
        std::vector<float> mine = first;
        for (int k = 0; k < iterations; k++) {
            float sums[HIDDEN + 1], delta[HIDDEN + 1];
            for (int h = 1; h <= HIDDEN; h++) {
                double sum = mine[h];
                for (int i = 1; i <= inputs; i++) sum += double(mine[size_t(i) * PITCH + h]) * input[i];
                sums[h] = sum;
            }
            again.errors(sums, delta);
            // The earlier changes are always those that the host has: none.
            for (int i = 1; i <= inputs; i++)
                for (int h = 1; h <= HIDDEN; h++) mine[size_t(i) * PITCH + h] += RATE * delta[h] * input[i];
        }
        for (size_t i = 0; i < mine.size(); i++)
            REQUIRE(agree(weights[i], mine[i], 1e-4), "weight %zu is %.9g instead of %.9g", i, weights[i], mine[i]);
    }
    return finished(arguments, "a network trained");
}
