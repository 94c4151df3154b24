"""What only the course needs: the stages of its weeks, and which model class runs in which week."""
