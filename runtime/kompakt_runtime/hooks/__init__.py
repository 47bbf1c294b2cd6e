"""What autograd calls when it saves a tensor and reads it again, and what then becomes of the tensor."""
