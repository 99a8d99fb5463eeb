// Forces among particles that lie in boxes, each with those of the neighbouring boxes. The pattern is that of Rodinia's LavaMD.
//
// Copies: the boxes with their neighbours, positions, charges and forces to the device at the beginning, the forces back at the end.
// Launches: one, in which each box is a block. So nearly all of the device's time is one kernel, between two large copies.
#define EXAMPLE "lavamd"
#include "common/pattern.h"

struct Particle {
    double v, x, y, z;
};

struct Box {
    int first, neighbours, neighbour[27];
};

__host__ __device__ inline void add_force(Particle& f, const Particle& a, const Particle& b, double charge) {
    const double alpha = 0.5, a2 = 2 * alpha * alpha;
    double r2 = a.v + b.v - (a.x * b.x + a.y * b.y + a.z * b.z);
    double u = exp(-a2 * r2), force = 2 * u;
    f.v += charge * u;
    f.x += charge * force * (a.x - b.x);
    f.y += charge * force * (a.y - b.y);
    f.z += charge * force * (a.z - b.z);
}

__global__ void forces(const Box* boxes, const Particle* at, const double* charge, Particle* force, int particles) {
    const Box& box = boxes[blockIdx.x];
    for (int i = threadIdx.x; i < particles; i += blockDim.x) {
        Particle f = force[box.first + i];
        for (int n = 0; n < box.neighbours; n++)
            for (int j = 0, first = boxes[box.neighbour[n]].first; j < particles; j++)
                add_force(f, at[box.first + i], at[first + j], charge[first + j]);
        force[box.first + i] = f;
    }
}

int main(int argc, char** argv) {
    Arguments arguments(argc, argv);
    int side = arguments.take("boxes", 4, 1, 200), particles = arguments.take("particles", 16, 1, 128);
    arguments.end();
    std::vector<Box> boxes;
    for (int z = 0; z < side; z++)
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++) {
                Box box{int(boxes.size()) * particles, 0, {}};
                for (int k = 0; k < 27; k++) {
                    int nx = x + k % 3 - 1, ny = y + k / 3 % 3 - 1, nz = z + k / 9 - 1;
                    if (std::min(nx, std::min(ny, nz)) >= 0 && std::max(nx, std::max(ny, nz)) < side)
                        box.neighbour[box.neighbours++] = (nz * side + ny) * side + nx;
                }
                boxes.push_back(box);
            }
    Random random(17);
    size_t count = boxes.size() * particles;
    std::vector<Particle> at(count), force(count, Particle{});
    std::vector<double> charge(count);
    for (Particle& p : at) p = {random.unit(), random.unit(), random.unit(), random.unit()};
    for (double& q : charge) q = random.unit();
    DeviceArray<Box> dboxes(boxes);
    DeviceArray<Particle> dat(at), dforce(force);
    DeviceArray<double> dcharge(charge);
    forces<<<boxes.size(), std::min(particles, 128)>>>(dboxes, dat, dcharge, dforce, particles);
    CHECK(cudaGetLastError());
    arguments.iterated();
    std::vector<Particle> got = dforce.download();
    if (arguments.check)
        for (const Box& box : boxes)
            for (int i = box.first; i < box.first + particles; i++) {
                Particle f{};
                for (int n = 0; n < box.neighbours; n++)
                    for (int j = 0, first = boxes[box.neighbour[n]].first; j < particles; j++)
                        add_force(f, at[i], at[first + j], charge[first + j]);
                bool right = agree(got[i].v, f.v, 1e-9) && agree(got[i].x, f.x, 1e-9) &&
                             agree(got[i].y, f.y, 1e-9) && agree(got[i].z, f.z, 1e-9);
                REQUIRE(right, "the force on particle %d is %.12g, not %.12g", i, got[i].x, f.x);
            }
    return finished(arguments, "forces of particles");
}
